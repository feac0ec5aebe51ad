// SPDX-License-Identifier: MIT

//go:build linux

package procstat

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"
)

func TestCPU(t *testing.T) {
	before, err := CPU(os.Getpid())
	if err != nil || before <= 0 {
		t.Fatalf("%v, %v", before, err)
	}
	for end := time.Now().Add(time.Minute); ; {
		now, err := CPU(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if now > before {
			return
		}
		if time.Now().After(end) {
			t.Fatal("this process has used no CPU time")
		}
	}
}

func TestStatus(t *testing.T) {
	if n, err := Resident(os.Getpid()); err != nil || n < 1<<20 {
		t.Errorf("resident: %d, %v", n, err)
	}
	before, err := Sleeps(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		time.Sleep(time.Millisecond)
	}
	if after, err := Sleeps(os.Getpid()); err != nil || after <= before {
		t.Errorf("slept %d times before and %d after, %v", before, after, err)
	}
	if n := Ports(); n < 100 || n > 1<<16 {
		t.Errorf("%d ports", n)
	}
	const nobody = 1 << 27
	for name, f := range map[string]func(int) (int64, error){"resident": Resident, "sleeps": Sleeps} {
		if _, err := f(nobody); err == nil {
			t.Errorf("%s of a missing process succeeded", name)
		}
	}
	if _, err := CPU(nobody); err == nil {
		t.Error("CPU of a missing process succeeded")
	}
}

func TestCountSyscalls(t *testing.T) {
	s, err := CountSyscalls(os.Getpid())
	if errors.Is(err, ErrNotCounted) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	const calls = 2000
	least := uint64(1 << 62) // the runtime makes calls too
	for n := 0; n < 5 && least > 2*calls; n++ {
		before, err := s.Read()
		for range calls {
			syscall.Getppid()
		}
		after, readErr := s.Read()
		if err := errors.Join(err, readErr); err != nil {
			t.Fatal(err)
		}
		least = min(least, uint64(after-before))
	}
	if least < calls || least > 2*calls {
		t.Errorf("counted %d of %d calls", least, calls)
	}
}

// TestTracepointWithoutMount reads the number where tracefs is not mounted.
func TestTracepointWithoutMount(t *testing.T) {
	want, err := tracepoint()
	if err != nil {
		t.Skipf("tracepoints: %v", err)
	}
	if got, err := mountedTracepoint(); err == nil && got != want || err != nil && os.Getuid() == 0 && !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.EBUSY) {
		t.Errorf("%d, %v: want %d", got, err, want)
	}
}

// SPDX-License-Identifier: MIT

//go:build linux

package procstat

import (
	"errors"
	"os"
	"runtime"
	"sync"
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

// TestCountSyscallsOfNewThreads counts the calls of threads that start while the counting begins.
func TestCountSyscallsOfNewThreads(t *testing.T) {
	const threads, calls = 40, 500
	counting, counted := make(chan struct{}), make(chan struct{})
	var started, done sync.WaitGroup
	for range threads {
		started.Add(1)
		done.Go(func() {
			<-counting
			runtime.LockOSThread() // and never unlocked: another thread starts for the next goroutine
			started.Done()
			<-counted
			for range calls {
				syscall.Getppid()
			}
		})
	}
	close(counting)
	s, err := CountSyscalls(os.Getpid())
	started.Wait()
	var before int64
	if err == nil {
		before, err = s.Read()
	}
	close(counted)
	done.Wait()
	if errors.Is(err, ErrNotCounted) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	after, err := s.Read()
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	if after-before < threads*calls {
		t.Errorf("counted %d of %d calls", after-before, threads*calls)
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

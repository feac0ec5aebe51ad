// SPDX-License-Identifier: MIT

//go:build linux

package reactor

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// TestFewerRingsWhereMemoryIsShort uses memlock limits that leave memory for one ring of
// three, and for none.
// Promise: reactor/little-memory-few
func TestFewerRingsWhereMemoryIsShort(t *testing.T) {
	ringtest.NeedRing(t)
	for _, room := range []int{1, 0} {
		opened := 0
		r, err := New(Options{Loops: 3, open: func(o *Options, first ring) (ring, parker, error) {
			if opened == room {
				return nil, nil, syscall.ENOMEM
			}
			opened++
			return openKernelRing(o, first)
		}})
		if room == 0 {
			if !errors.Is(err, syscall.ENOMEM) {
				t.Fatalf("no room at all: %v", err)
			}
			continue
		}
		if err != nil || len(r.loops) != room {
			t.Fatalf("room for one ring: %v", err)
		}
		op := &Op{}
		op.SQE.Nop()
		for range 10 {
			if res := r.Do(op); res.Cause != nil || res.Res != 0 {
				t.Errorf("%+v", res)
			}
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Environment variables for a process with a low limit.
const (
	memlockLimit = "RINGSIDE_TEST_MEMLOCK" // the limit in bytes
	memlockFile  = "RINGSIDE_TEST_FILE"    // the file to read
)

// TestLowMemlock runs in processes of another user who may lock little memory.
// Promise: reactor/little-memory-few
func TestLowMemlock(t *testing.T) {
	ringtest.NeedRing(t)
	if limit := os.Getenv(memlockLimit); limit != "" {
		lowMemlock(t, limit)
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file, _ := pattern(t, 1<<16)
	for _, limit := range []int{64 << 10, 512 << 10} {
		cmd := exec.Command(exe, "-test.run=^TestLowMemlock$", "-test.v")
		cmd.Env = append(cmd.Environ(), memlockLimit+"="+strconv.Itoa(limit), memlockFile+"="+file.Name())
		out, err := cmd.CombinedOutput()
		switch {
		case err == nil && bytes.Contains(out, []byte("--- SKIP: TestLowMemlock")):
			t.Skipf("%s", out)
		case err != nil || !bytes.Contains(out, []byte("--- PASS: TestLowMemlock")):
			t.Errorf("%v\n%s", err, out)
		}
		t.Logf("%s", out)
	}
}

func lowMemlock(t *testing.T, limit string) {
	const memlock = 8 // RLIMIT_MEMLOCK
	bytes, err := strconv.ParseUint(limit, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	var was syscall.Rlimit
	if err := syscall.Getrlimit(memlock, &was); err != nil {
		t.Fatal(err)
	}
	switch err := syscall.Setrlimit(memlock, &syscall.Rlimit{Cur: bytes, Max: bytes}); {
	case err == syscall.EPERM && was.Max < bytes:
		t.Skipf("needs RLIMIT_MEMLOCK of %d bytes, the hard limit is %d", bytes, was.Max)
	case err != nil:
		t.Fatal(err)
	}
	file, err := os.Open(os.Getenv(memlockFile))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	alone := ringtest.WithoutPrivileges(t, 1<<20+os.Getpid()) // a user without locked memory
	r := newWithLowMemlock(t, alone)
	readWithLowMemlock(t, r, file)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// newWithLowMemlock retries until the kernel has freed earlier rings, which it does some
// time after they were closed. Memory that other processes of the user hold may never be
// freed.
func newWithLowMemlock(t *testing.T, alone bool) *Reactor {
	for start := time.Now(); ; runtime.Gosched() {
		r, err := New(Options{Loops: 2})
		switch waited := time.Since(start); {
		case err == nil:
			return r
		case !errors.Is(err, syscall.ENOMEM) || waited > ringtest.Patience:
			t.Fatal(err)
		case !alone && waited > ringtest.Patience/10:
			t.Skipf("needs locked memory that the user's other processes do not hold: %v", err)
		}
	}
}

// readWithLowMemlock reads the whole file, many operations at a time.
func readWithLowMemlock(t *testing.T, r *Reactor, file *os.File) {
	want := make([]byte, 1<<16)
	if _, err := file.ReadAt(want, 0); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 256 {
		wg.Go(func() {
			p := make([]byte, 100)
			if res := read(r, int(file.Fd()), p, int64(i)*100); res.Res != 100 || !bytes.Equal(p, want[i*100:][:100]) {
				t.Errorf("%+v", res)
			}
		})
	}
	wg.Wait()
	t.Logf("%d rings", len(r.loops))
}

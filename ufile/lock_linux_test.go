// SPDX-License-Identifier: MIT

package ufile_test

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/ufile"
)

// TestLocks takes conflicting locks through two descriptors of a file.
// Promise: ufile/lock-excludes-open
func TestLocks(t *testing.T) {
	s := newSystem(t, ufile.Options{})
	path := fileOf(t, random(100))
	a, b := open(t, s, path, os.O_RDWR), open(t, s, path, os.O_RDWR)
	for name, l := range map[string]struct {
		lock func(*ufile.File, ufile.LockMode) error
		try  func(*ufile.File, ufile.LockMode) (bool, error)
	}{
		"flock": {(*ufile.File).Flock, (*ufile.File).TryFlock},
		"range": {
			func(f *ufile.File, m ufile.LockMode) error { return f.LockRange(m, 10, 20) },
			func(f *ufile.File, m ufile.LockMode) (bool, error) { return f.TryLockRange(m, 29, 0) },
		},
	} {
		try := func(f *ufile.File, mode ufile.LockMode, want bool) {
			t.Helper()
			if got, err := l.try(f, mode); got != want || err != nil {
				t.Errorf("%s: mode %d: %v, %v, want %v", name, mode, got, err, want)
			}
		}
		if err := l.lock(a, ufile.LockShared); err != nil {
			t.Fatal(err)
		}
		try(b, ufile.LockShared, true)
		try(b, ufile.LockExclusive, false)
		try(b, ufile.Unlock, true)
		if err := l.lock(a, ufile.LockExclusive); err != nil {
			t.Fatal(err)
		}
		try(b, ufile.LockShared, false)
		got := make(chan error, 1)
		go func() { got <- l.lock(b, ufile.LockExclusive) }()
		if err := l.lock(a, ufile.Unlock); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Errorf("%s: the lock that waited: %v", name, err)
		}
		try(a, ufile.LockShared, false)
		if err := l.lock(b, ufile.Unlock); err != nil {
			t.Fatal(err)
		}
		if err := l.lock(a, 7); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: mode 7: %v", name, err)
		}
	}
	if ok, err := b.TryLockRange(ufile.LockShared, 0, 10); !ok || err != nil {
		t.Errorf("a range that does not overlap: %v, %v", ok, err)
	}
	a.Close()
	if err := a.Flock(ufile.LockShared); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed file: %v", err)
	}
}

// TestFlockOfAnotherProgram checks that util-linux's flock respects the lock.
// Promise: ufile/lock-excludes-open
func TestFlockOfAnotherProgram(t *testing.T) {
	program, err := exec.LookPath("flock")
	if err != nil {
		t.Skip("needs flock of util-linux")
	}
	path := fileOf(t, nil)
	f := open(t, newSystem(t, ufile.Options{}), path, os.O_RDWR)
	run := func() error { return exec.Command(program, "-n", path, "true").Run() }
	if err := run(); err != nil {
		t.Fatal(err)
	}
	if err := f.Flock(ufile.LockExclusive); err != nil {
		t.Fatal(err)
	}
	if err := run(); err == nil {
		t.Error("flock took a lock that is held")
	}
	f.Close()
	if err := run(); err != nil {
		t.Errorf("after Close: %v", err)
	}
}

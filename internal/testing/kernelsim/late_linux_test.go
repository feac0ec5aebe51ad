// SPDX-License-Identifier: MIT

package kernelsim

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringside-io/ringside/uring"
)

// TestLateOperationsKeepTheirFiles makes rings fail with a write in flight. The file is
// closed, and another file gets its number. A late write must go to the first file, because
// the kernel holds the file and not the number.
func TestLateOperationsKeepTheirFiles(t *testing.T) {
	late := 0
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			if lateWrite(t, seed) {
				late++
			}
		})
	}
	if late == 0 {
		t.Error("no write was carried out late")
	}
}

// lateWrite reports whether the write was carried out after the file was closed.
func lateWrite(t *testing.T, seed uint64) bool {
	dir := t.TempDir()
	names := [2]string{filepath.Join(dir, "first"), filepath.Join(dir, "second")}
	var fds [2]int
	for i, name := range names {
		fd, err := syscall.Open(name, syscall.O_RDWR|syscall.O_CREAT|syscall.O_CLOEXEC, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Close(fd)
		fds[i] = fd
	}
	content := func(i int) string {
		p, err := os.ReadFile(names[i])
		if err != nil {
			t.Fatal(err)
		}
		return string(p)
	}

	submissions := 0
	k := New(Options{Seed: seed, Host: Files{}, FirstFD: 1 << 20, Faults: Faults{Delay: 1},
		Plan: Plan{Submit: func(n int) (int, bool, syscall.Errno) {
			if submissions++; submissions > 1 {
				return 0, false, syscall.EBADF
			}
			return n, false, 0
		}}})
	defer k.Close()
	r := k.Open(RingOptions{Entries: 8, CQEntries: 8})
	p := []byte("late")
	for range 2 { // the second write fails
		r.SQE().Write(uring.Fd(fds[0]), p, 0)
		_, _ = r.Submit()
	}
	if !k.Failed() {
		t.Fatal("the ring works")
	}
	early := content(0) != ""
	if err := syscall.Dup3(fds[1], fds[0], syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	runtime.KeepAlive(p)
	if got := content(0); got != "late" {
		t.Errorf("the file has %q", got)
	}
	if got := content(1); got != "" {
		t.Errorf("the file that reused the number has %q", got)
	}
	return !early
}

// SPDX-License-Identifier: MIT

package uring_test

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// Helpers that the kernel tests of file operations share. They are portable, so that tests
// without Linux-only identifiers can be beside their goldens.

// unusedFD is a descriptor number that no process of the tests uses.
const unusedFD = 1 << 30

// complete is ringtest.Do. Whatever build captures stays reachable until the completion, as
// the kernel requires: make buffers outside of build.
func complete(t *testing.T, r *uring.Ring, build func(e *uring.SQE)) uring.CQE {
	t.Helper()
	c := ringtest.Do(t, r, build)
	runtime.KeepAlive(build)
	return c
}

func wantRes(t *testing.T, c uring.CQE, res int) {
	t.Helper()
	if int(c.Res) != res {
		t.Fatalf("result %d (%v), want %d", c.Res, c.Err(), res)
	}
}

func wantErrno(t *testing.T, c uring.CQE, errno syscall.Errno) {
	t.Helper()
	if c.Errno() != errno {
		t.Fatalf("result %d (%v), want %v", c.Res, c.Err(), errno)
	}
}

// tempFile returns a new file with the given content, open for reading and
// writing at its start.
func tempFile(t *testing.T, content string) *os.File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// readOnly opens the same file for reading.
func readOnly(t *testing.T, f *os.File) *os.File {
	t.Helper()
	ro, err := os.Open(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ro.Close() })
	return ro
}

// wantContent compares the whole file with a string.
func wantContent(t *testing.T, name, want string) {
	t.Helper()
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Fatalf("the file holds %q, want %q", got, want)
	}
}

// osPipe returns a pipe.
func osPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// fdOf returns the descriptor of f for an entry.
func fdOf(f *os.File) uring.FD { return uring.Fd(int(f.Fd())) }

// registerFiles fills the fixed file table.
func registerFiles(t *testing.T, r *uring.Ring, fds ...int) {
	t.Helper()
	if err := r.RegisterFiles(fds); err != nil {
		t.Fatal(err)
	}
}

// registerBuffer registers one buffer, with index 0, until the ring is closed.
func registerBuffer(t *testing.T, r *uring.Ring, n int) []byte {
	t.Helper()
	buf := make([]byte, n)
	if err := r.RegisterBuffers([][]byte{buf}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { runtime.KeepAlive(buf) })
	return buf
}

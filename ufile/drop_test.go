// SPDX-License-Identifier: MIT

package ufile_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/ringtest"
	"github.com/ringside-io/ringside/ufile"
)

// TestDroppedFiles loses files without closing them: the collector closes them,
// as it does those of os, and with the last one the rings.
func TestDroppedFiles(t *testing.T) {
	s := newSystem(t, ufile.Options{Mode: ufile.ModeRing})
	path := fileOf(t, random(100))
	for range 20 {
		f, err := s.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		readAt(t, f, make([]byte, 10), 0)
	}
	deadline := time.Now().Add(ringtest.Patience)
	for rings(t) > 0 || openings(t, path) > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("%d rings and %d files are still open", rings(t), openings(t, path))
		}
		runtime.GC()
	}
	if got := s.Stats(); got.Ring != 20 {
		t.Errorf("%+v", got)
	}
}

// TestConnectionOutlivesTheFile drops the File of a connection in use.
func TestConnectionOutlivesTheFile(t *testing.T) {
	s := newSystem(t, ufile.Options{})
	f, err := s.Open(fileOf(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	f = nil
	for range 5 {
		runtime.GC()
		if err := conn.Control(func(uintptr) {}); err != nil {
			t.Fatal(err)
		}
	}
	runtime.KeepAlive(conn)
}

// openings counts the descriptors of a file.
func openings(t *testing.T, path string) int {
	t.Helper()
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Skipf("needs /proc: %v", err)
	}
	n := 0
	for _, e := range entries {
		if link, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && link == path {
			n++
		}
	}
	return n
}

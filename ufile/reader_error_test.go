// SPDX-License-Identifier: MIT

package ufile

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/sys"
)

// TestReaderComesToAnErrorAtItsPosition lets blocks fail that were read ahead. A block is
// large, and the error is anywhere in it. The bytes before the error are read in small
// pieces, and bytes that have become readable meanwhile cause no error.
func TestReaderComesToAnErrorAtItsPosition(t *testing.T) {
	const block = 4 * DirectAlign
	content := make([]byte, 20*block)
	for i := range content {
		content[i] = byte(i / DirectAlign)
	}
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := NewSystem(Options{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := s.OpenFile(path, os.O_RDONLY|sys.ODirect, 0)
	if sys.ODirect == 0 || err != nil {
		t.Skipf("needs O_DIRECT: %v", err)
	}
	defer f.Close()
	r := NewReader(f, ReaderOptions{BlockSize: block, Blocks: 8})
	defer r.Close()
	got := make([]byte, 7*block)
	if _, err := io.ReadFull(r, got); err != nil {
		t.Fatal(err)
	}
	if len(r.queue) < 4 {
		t.Fatalf("%d blocks ahead", len(r.queue))
	}
	for _, i := range []int{1, 3} {
		b := r.queue[i]
		b.wait()
		b.n, b.err = 0, f.pathError("read", syscall.EIO)
	}
	bad := r.queue[1].end()
	rest, err := io.ReadAll(r)
	if got = append(got, rest...); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes, %v, or wrong data", len(got), err)
	}
	if r.small != bad {
		t.Errorf("read in small pieces up to %d, want %d", r.small, bad)
	}

	// A permanent error: the descriptor now returns nothing else.
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	fd := f.fd
	r.small = 0
	f.fd = int(dir.Fd())
	n, err := r.Read(make([]byte, 10))
	f.fd = fd
	if e, ok := err.(*os.PathError); n != 0 || !ok || e.Op != "read" || e.Err != syscall.EISDIR {
		t.Errorf("%d, %v", n, err)
	}
	if r.small != block {
		t.Errorf("the reader looked for the error up to %d, want %d", r.small, block)
	}
	p := make([]byte, 10)
	if n, err := r.Read(p); n != 10 || err != nil || !bytes.Equal(p, content[:10]) {
		t.Errorf("the call after an error: %d, %v", n, err)
	}
}

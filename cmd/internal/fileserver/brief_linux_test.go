// SPDX-License-Identifier: MIT

package fileserver

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLongFileFromDisk sends a file that the page cache does not hold, or of which it holds some parts.
func TestLongFileFromDisk(t *testing.T) {
	want := make([]byte, longTransfer+12345)
	_, _ = rand.NewChaCha8([32]byte{}).Read(want)
	dir := t.TempDir()
	path := filepath.Join(dir, "f.jpg")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(want); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	addr := start(t, dir, Options{})
	for name, keep := range map[string][]int64{"all": nil, "none": {0}, "ends": {0, briefMax - 4096, briefMax, 2*briefMax - 4096}} {
		if keep != nil { // a hint, which some file systems do not take
			_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
		}
		for _, at := range keep[min(1, len(keep)):] {
			_, _ = f.ReadAt(make([]byte, 1), at)
		}
		down := begin(t, addr, "/f.jpg")
		if got, err := io.ReadAll(down.Body); !bytes.Equal(got, want) || err != nil {
			t.Errorf("%s in the page cache: %d bytes, %v", name, len(got), err)
		}
	}
}

// TestBriefCalls looks at what is told of a file.
func TestBriefCalls(t *testing.T) {
	c, slow, peer, r := slowTransfer(t, 2*longTransfer)
	file := -1
	if raw, err := r.file.SyscallConn(); err != nil || raw.Control(func(fd uintptr) { file = int(fd) }) != nil {
		t.Fatal(err)
	}
	if !inPageCache(file, 5) {
		t.Skip("the file system does not tell what the page cache holds")
	}
	if inPageCache(file, 2*longTransfer) {
		t.Error("there is something after the end")
	}
	off := int64(3)
	if n, brief, err := sendBrief(slow.fd, file, &off, longTransfer); n == 0 || n > briefMax || !brief || err != nil || off != 3+int64(n) {
		t.Errorf("%d bytes, %v, %v, position %d", n, brief, err, off)
	}
	off = 2*longTransfer - 1
	if n, brief, err := sendBrief(slow.fd, file, &off, 2); n != 0 || brief || err != nil {
		t.Errorf("beyond the end: %d bytes, %v, %v", n, brief, err)
	}
	buf := make([]byte, 1<<20)
	slow.wait = func() error {
		_, err := unix.Read(peer, buf)
		return err
	}
	if n, err := c.sendFile(r); n != 2*longTransfer || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// SPDX-License-Identifier: MIT

package fileserver

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLongFileFromDisk sends a file that is not in the page cache, or only in parts.
func TestLongFileFromDisk(t *testing.T) {
	want := make([]byte, 8<<20+12345)
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
	for name, keep := range map[string][]int64{"all": nil, "none": {0}, "ends": {0, sendMax - 4096, sendMax, 2*sendMax - 4096}} {
		if keep != nil { // a hint that some file systems ignore
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

// TestLargeLeavesRoomForSmall checks the calls of sendfile: each is for a small piece, and while
// there are small requests only some of the large ones run at the same time.
func TestLargeLeavesRoomForSmall(t *testing.T) {
	c, slow, peer, r := slowTransfer(t, 8<<20)
	var file int
	if raw, err := r.file.SyscallConn(); err != nil || raw.Control(func(fd uintptr) { file = int(fd) }) != nil {
		t.Fatal(err)
	}
	transfer := transfer{conn: c, fileRange: r}
	for range cap(sending) {
		sending <- struct{}{}
	}
	smallAt.Store(0)
	if n, err := transfer.piece(slow.fd, file); n <= 0 || n > sendMax || err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	buf := make([]byte, 1<<20)
	empty := func() bool {
		n, err := unix.Read(peer, buf)
		return n <= 0 && err == unix.EAGAIN
	}
	if err := unix.SetNonblock(peer, true); err != nil {
		t.Fatal(err)
	}
	for !empty() {
	}
	noteSmall()
	smallAt.Add(int64(time.Hour)) // the request counts for some time
	defer smallAt.Store(0)
	done := make(chan error, 1)
	go func() {
		_, err := transfer.piece(slow.fd, file)
		done <- err
	}()
	time.Sleep(5 * time.Millisecond)
	if !empty() {
		t.Error("more calls ran than are permitted")
	}
	for range cap(sending) {
		<-sending
	}
	if err := <-done; err != nil || empty() {
		t.Errorf("the call has sent nothing: %v", err)
	}
}

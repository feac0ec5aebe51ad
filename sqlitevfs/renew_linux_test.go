// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
)

// TestUnwrittenFrames finds the first block of which the page cache has content and the disk has zeros, and gives other
// blocks to the frames from there on, if the connection is alone.
func TestUnwrittenFrames(t *testing.T) {
	path, wal := someWAL(t)
	size := int64(len(wal))
	const lost = 8192 // the block whose write has failed
	onDisk := bytes.Clone(wal)
	clear(onDisk[lost:][:4096])
	disk, err := os.Create(path + ".disk")
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	put := func(p []byte) {
		if _, err := disk.WriteAt(p, 0); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(disk.Truncate(int64(len(p))), disk.Sync()); err != nil {
			t.Fatal(err)
		}
	}
	fd := int(disk.Fd())
	cached := func() *renewedFile { return &renewedFile{memoryFile: memoryFile{data: bytes.Clone(wal)}} }
	put(onDisk)
	off, err := unwrittenBlock(fd, cached(), size)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		t.Skip("needs O_DIRECT:", err)
	}
	if off != lost || err != nil {
		t.Errorf("the lost block is at %d, %v, want %d", off, err, lost)
	}
	if off, err := unwrittenBlock(fd, cached(), lost); off != lost || err != nil {
		t.Errorf("before the lost block: %d, %v", off, err)
	}
	failing := cached()
	failing.failAt = 1
	if _, err := unwrittenBlock(fd, failing, size); !errors.Is(err, syscall.EIO) {
		t.Errorf("the page cache cannot be read: %v", err)
	}
	if _, err := unwrittenBlock(-1, cached(), size); err == nil {
		t.Error("no file was examined")
	}

	again := fmt.Sprintf("write 0+%d\n", size)
	moved := fmt.Sprintf("write 0+%d\ntruncate %d\nwrite %d+%d\n", lost, lost, lost, size-lost)
	for _, tt := range []struct {
		name  string
		end   int64
		alone bool
		fd    int
		want  string
		err   error
	}{
		{"alone", size, true, fd, moved, nil},
		{"alone, with an end that is not known", -1, true, fd, moved, nil},
		{"beside another connection", size, false, fd, again, errSameBlocks},
		{"without a descriptor", size, true, -1, again, nil},
	} {
		f := cached()
		if err := (&file{File: f, fd: tt.fd}).rewrite(tt.end, tt.alone); err != tt.err || f.done != tt.want || !bytes.Equal(f.data, wal) {
			t.Errorf("%s: %v, want %v; calls:\n%s", tt.name, err, tt.err, f.done)
		}
	}
	f := cached()
	f.failAt = 3 // the reads of both come before the write
	if err := (&file{File: f, fd: fd}).rewrite(size, false); !errors.Is(err, syscall.EIO) || f.done != "" {
		t.Errorf("beside another connection, and the write fails: %v; calls:\n%s", err, f.done)
	}

	put(wal)
	if off, err := unwrittenBlock(fd, cached(), size); off != size || err != nil {
		t.Errorf("nothing is lost: %d, %v", off, err)
	}
	put(wal[:lost])
	if _, err := unwrittenBlock(fd, cached(), size); err == nil {
		t.Error("the file on the disk is shorter, and nothing failed")
	}
}

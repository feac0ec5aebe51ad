// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"

	"github.com/ncruces/go-sqlite3/vfs"
)

// renewedFile is a file in memory. Its calls from the one numbered failAt on fail.
type renewedFile struct {
	memoryFile
	calls, failAt int
	done          string // the calls that change the file
}

func (f *renewedFile) call() error {
	if f.calls++; f.failAt > 0 && f.calls >= f.failAt {
		return syscall.EIO
	}
	return nil
}

func (f *renewedFile) Size() (int64, error) { return int64(len(f.data)), f.call() }

func (f *renewedFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.call(); err != nil {
		return 0, err
	}
	return bytes.NewReader(f.data).ReadAt(p, off)
}

func (f *renewedFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.call(); err != nil {
		return 0, err
	}
	f.done += fmt.Sprintf("write %d+%d\n", off, len(p))
	return f.memoryFile.WriteAt(p, off)
}

func (f *renewedFile) Sync(vfs.SyncFlag) error {
	f.done += "sync\n"
	return f.call()
}

func (f *renewedFile) Truncate(size int64) error {
	if err := f.call(); err != nil {
		return err
	}
	f.done += fmt.Sprintf("truncate %d\n", size)
	f.data = f.data[:size]
	return nil
}

const frame = frameHeaderSize + 4096

// someWAL returns the path of a database that is open, and its WAL of five transactions.
func someWAL(t *testing.T) (path string, wal []byte) {
	t.Helper()
	path = dbFile(t)
	c := connect(t, path, "os")
	execSQL(t, c, "PRAGMA journal_mode=wal; CREATE TABLE t(x)")
	for range 4 {
		execSQL(t, c, "INSERT INTO t VALUES(randomblob(3000))")
	}
	wal, err := os.ReadFile(path + suffixWAL)
	if err != nil {
		t.Fatal(err)
	}
	size := int64(len(wal))
	if frames := (size - walHeaderSize) / frame; frames < 5 || walHeaderSize+frames*frame != size {
		t.Fatalf("the WAL has %d bytes", size)
	}
	return path, wal
}

// TestRewriteFrames writes the frames of a WAL again, as after a failed sync: the content stays, what lies behind an
// offset gets other blocks, and a frame that was lost ends it.
func TestRewriteFrames(t *testing.T) {
	_, wal := someWAL(t)
	size := int64(len(wal))
	for _, tt := range []struct {
		name       string
		end, fresh int64
		want       string
	}{
		{"all committed frames", size, noBlock, fmt.Sprintf("write 0+%d\n", size)},
		{"some committed frames", size - frame, noBlock, fmt.Sprintf("write 0+%d\n", size-frame)},
		{"all of an unknown end", -1, noBlock, fmt.Sprintf("write 0+%d\n", size)},
		{"blocks of a failed write", size, 8192, fmt.Sprintf("write 0+8192\ntruncate 8192\nwrite 8192+%d\n", size-8192)},
		{"those of uncommitted frames too", size - frame, 8192, fmt.Sprintf("write 0+8192\ntruncate 8192\nwrite 8192+%d\n", size-8192)},
		{"nothing", 0, noBlock, ""},
	} {
		f := &renewedFile{memoryFile: memoryFile{data: bytes.Clone(wal)}}
		if err := rewriteFrames(f, tt.end, tt.fresh); err != nil || f.done != tt.want || !bytes.Equal(f.data, wal) {
			t.Errorf("%s: %v, the content is the same: %v; calls:\n%s", tt.name, err, bytes.Equal(f.data, wal), f.done)
		}
		// Each call fails.
		for n := 1; n <= f.calls; n++ {
			f := &renewedFile{memoryFile: memoryFile{data: bytes.Clone(wal)}, failAt: n}
			if err := rewriteFrames(f, tt.end, tt.fresh); !errors.Is(err, syscall.EIO) {
				t.Errorf("%s: call %d fails: %v", tt.name, n, err)
			}
		}
	}

	lost := bytes.Clone(wal)
	clear(lost[walHeaderSize+2*frame:][:frame])
	f := &renewedFile{memoryFile: memoryFile{data: lost}}
	if err := rewriteFrames(f, size, noBlock); err != errBroken || f.done != "" {
		t.Errorf("a committed frame is lost: %v; calls:\n%s", err, f.done)
	}
	f = &renewedFile{memoryFile: memoryFile{data: wal[:size-1]}}
	if err := rewriteFrames(f, size, noBlock); !errors.Is(err, errBroken) || !errors.Is(err, io.EOF) {
		t.Errorf("the last frame is too short: %v", err)
	}
}

// TestCommittedFrames: the index of a WAL says where the committed frames end, unless it is missing, is being changed, or
// is that of another life of the WAL.
func TestCommittedFrames(t *testing.T) {
	path, wal := someWAL(t)
	shm, err := os.ReadFile(path + "-shm")
	if err != nil {
		t.Fatal(err)
	}
	size := int64(len(wal))
	torn, other := bytes.Clone(shm), bytes.Clone(shm)
	torn[16]++ // one of the two copies
	for _, copy := range []int{0, 48} {
		other[copy+32]++ // the salt
	}
	for _, tt := range []struct {
		name       string
		wal, shm   []byte
		ended      bool
		end        int64
		ours, fail bool
	}{
		{"committed frames", wal, shm, false, size, false, false},
		{"frames of a commit of its own", wal, shm, true, size, true, false},
		{"a life without a commit", wal, other, false, walHeaderSize, false, false},
		{"no index", wal, nil, false, 0, false, true},
		{"no index, after a commit of its own", wal, nil, true, -1, false, false},
		{"a part of an index", wal, shm[:95], false, 0, false, true},
		{"an index that is being changed", wal, torn, false, 0, false, true},
		{"a part of a header", wal[:walHeaderSize-1], shm, false, 0, false, true},
		{"no WAL", make([]byte, walHeaderSize), shm, false, 0, false, true},
	} {
		name := dbFile(t)
		if tt.shm != nil {
			if err := os.WriteFile(name+"-shm", tt.shm, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		f := &file{File: &renewedFile{memoryFile: memoryFile{data: tt.wal}}, name: name + suffixWAL, frames: &frameWriter{ended: tt.ended}}
		end, ours, err := f.committed()
		if end != tt.end || ours != tt.ours || (err != nil) != tt.fail {
			t.Errorf("%s: they end at %d, ours: %v, %v; want %d, %v, an error: %v", tt.name, end, ours, err, tt.end, tt.ours, tt.fail)
		}
	}
}

// TestRenewHeader writes and syncs the header of a rollback journal again, unless it cannot be read as a whole.
func TestRenewHeader(t *testing.T) {
	for _, tt := range []struct {
		size, failAt int
		want         string
	}{
		{1000, 0, "write 0+1000\nsync\n"},
		{maxSector + 1, 0, fmt.Sprintf("write 0+%d\nsync\n", maxSector)},
		{1000, 1, ""}, // Size fails
		{1000, 2, ""}, // ReadAt
		{1000, 3, ""}, // WriteAt
	} {
		base := &renewedFile{memoryFile: memoryFile{data: bytes.Repeat([]byte("j"), tt.size)}, failAt: tt.failAt}
		f := &file{File: base, db: &database{}, flags: vfs.OPEN_MAIN_JOURNAL, fd: -1}
		f.failed()
		if base.done != tt.want {
			t.Errorf("%d bytes, call %d fails; calls:\n%s", tt.size, tt.failAt, base.done)
		}
	}
}

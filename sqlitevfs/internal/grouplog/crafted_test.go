// SPDX-License-Identifier: MIT

package grouplog

import (
	"errors"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
)

// TestCraftedSizes opens files whose header has a size that no log can have, and sparse
// files that are too large to read.
// Promise: sqlitevfs/corrupt-truncated-crafted
func TestCraftedSizes(t *testing.T) {
	needLocks(t)
	for _, test := range []struct {
		name    string
		segment int64
		size    int64
	}{
		{"a file of a terabyte", minSegment, 1 << 40},
		{"segments of a gigabyte", 1 << 30, 2 << 30},
		{"a segment beyond the end", maxSegment, firstBatch + maxSegment/2},
		{"no segment", minSegment, firstBatch},
		{"a negative segment", math.MinInt64, 1 << 20},
		{"half a header", minSegment, block / 2},
		{"nothing", minSegment, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, defaultName)
			p := make([]byte, block)
			fileHeader{id: 1, revision: 2, generation: 3, segment: test.segment}.encode(p)
			if err := os.WriteFile(path, p, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, test.size); err != nil {
				t.Skip("no files with holes:", err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			var damaged *CorruptError
			if _, err := Recover(dir, Options{}); !errors.As(err, &damaged) {
				t.Error("Recover:", err)
			}
			if _, _, err := Open(dir, Options{}); !errors.As(err, &damaged) {
				t.Error("Open:", err)
			}
			if err := Lacks(dir, filepath.Join(dir, "db-wal"), Options{}); !errors.As(err, &damaged) {
				t.Error("Lacks:", err)
			}
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
				t.Errorf("%d bytes were allocated", n)
			}
		})
	}
}

// TestCraftedNames replays records whose paths are not those of WALs.
func TestCraftedNames(t *testing.T) {
	needLocks(t)
	root := t.TempDir()
	victim := newTestWAL(t, root, "victim")
	frames, off := victim.append(1)
	victim.lose(0)
	f, err := disk.OS.Open(victim.path, disk.ReadOnly, 0)
	if err != nil {
		t.Fatal(err)
	}
	id, err := f.ID()
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../victim-wal", victim.path, "x/../../victim-wal", "", ".", "..", "/", "victim", "\x00-wal", "-wal", "./x-wal"} {
		dir := filepath.Join(root, "log")
		os.RemoveAll(dir)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		l, _ := mustOpen(t, dir, small())
		h := l.header
		crash(l)
		batch := encodeBatch(batchHeader{id: h.id, generation: h.generation, seq: 1, live: 1, off: firstBatch},
			record{path: name, wal: mark(id), header: victim.parsed, off: off, frames: frames})
		writeAt(t, filepath.Join(dir, defaultName), batch, firstBatch)
		r, err := Recover(dir, Options{Local: true})
		if r.Applied != 0 || victim.holds() != 0 {
			t.Errorf("%q: %+v, %v", name, r, err)
		}
	}
}

func writeAt(t *testing.T, path string, p []byte, off int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(p, off); err != nil {
		t.Fatal(err)
	}
}

// FuzzRecover replays an arbitrary file with valid checksums next to a database with a WAL. The WAL
// must keep its commits.
// Promise: sqlitevfs/corrupt-truncated-crafted
func FuzzRecover(f *testing.F) {
	h := batchHeader{id: 1, generation: 2, seq: 1, live: 1, off: firstBatch}
	_, records := sample()
	f.Add(encodeBatch(h, records...), uint16(0))
	f.Add(encodeBatch(h, record{path: "db-wal", off: walHeaderSize, frames: make([]byte, frameHeaderSize+testPage)}), uint16(1))
	f.Add([]byte("RSGB"), uint16(4096))
	f.Fuzz(func(t *testing.T, batch []byte, cut uint16) {
		if len(batch) > minSegment {
			return
		}
		dir := t.TempDir()
		w := newTestWAL(t, dir, "db")
		w.append(2)
		w.append(1)
		p := make([]byte, firstBatch+minSegments*minSegment)
		fileHeader{id: 1, revision: 2, generation: 2, live: 1, segment: minSegment}.encode(p)
		copy(p[firstBatch:], batch)
		mend(p[firstBatch:])
		p = p[:len(p)-int(cut)%minSegment]
		if err := os.WriteFile(filepath.Join(dir, defaultName), p, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Lacks(dir, w.path, Options{}); err != nil {
			t.Log(err)
		}
		r, err := Recover(dir, Options{Local: true})
		if n := w.holds(); n != 2 {
			t.Errorf("%d commits of 2 are left: %+v, %v", n, r, err)
		}
		if again, second := Recover(dir, Options{Local: true}); err == nil && second != nil {
			t.Errorf("%+v, and then %+v, %v", r, again, second)
		}
	})
}

// TestCraftedHeaders has many headers of batches that claim much and hold
// nothing: decoding each would take very long.
func TestCraftedHeaders(t *testing.T) {
	needLocks(t)
	dir := t.TempDir()
	p := make([]byte, firstBatch+maxSegment)
	fileHeader{id: 1, revision: 2, generation: 2, live: 1, segment: maxSegment}.encode(p)
	for off := int64(firstBatch); off < int64(len(p)); off += block {
		h := batchHeader{id: 1, generation: 2, seq: uint64(off), off: off, length: maxBatch - batchHeaderSize, records: 1}
		h.encode(p[off:])
		le.PutUint32(p[off+batchHeaderSize+4:], maxBatch-batchHeaderSize-recordHeaderSize)
	}
	if err := os.WriteFile(filepath.Join(dir, defaultName), p, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := disk.OS.Open(filepath.Join(dir, defaultName), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	counted := &countedFile{File: f}
	defer f.Close()
	l := &Log{file: counted, opts: Options{FS: disk.OS}}
	if err := l.readHeader(); err != nil {
		t.Fatal(err)
	}
	var damaged *CorruptError
	if _, err := l.scan(); !errors.As(err, &damaged) {
		t.Error(err)
	}
	if counted.bytes > 2*maxSegment {
		t.Errorf("%d bytes of a log of %d were read", counted.bytes, len(p))
	}
}

type countedFile struct {
	disk.File
	bytes int64
}

func (f *countedFile) ReadAt(p []byte, off int64) (int, error) {
	f.bytes += int64(len(p))
	return f.File.ReadAt(p, off)
}

func crc(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }

// mend makes the checksums of a batch right, which would keep a fuzzer out.
func mend(p []byte) {
	length, sums := int(le.Uint32(p[48:])), uint32(0)
	rest := p[batchHeaderSize:]
	rest = rest[:min(max(length, 0), len(rest))]
	for range min(le.Uint32(p[52:]), 64) {
		if len(rest) < recordHeaderSize {
			break
		}
		end := int64(recordHeaderSize) + int64(le.Uint32(rest[4:])) + int64(le.Uint16(rest[8:]))
		if end > int64(len(rest)) {
			break
		}
		le.PutUint32(rest, crc(rest[4:end]))
		sums = addSum(sums, le.Uint32(rest))
		rest = rest[min(roundUp(end, recordAlign), int64(len(rest))):]
	}
	le.PutUint32(p[56:], sums)
	le.PutUint32(p[4:], crc(p[8:batchHeaderSize]))
}

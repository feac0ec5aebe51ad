// SPDX-License-Identifier: MIT

package appendlog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// mark is an acknowledged record, with the end of its segment at that time.
type mark struct {
	data string
	pos  Position
	end  int64
}

// markedLog writes groups of one record and a batch. It returns the bytes of the segment on
// the disk, without the zeros ahead.
func markedLog(t testing.TB, s *memStore, o Options) []mark {
	t.Helper()
	a := openMem(t, s, o)
	defer mustClose(t, a)
	var marks []mark
	add := func(pos Position, data ...string) {
		for i, d := range data {
			p := Position{pos.Segment, pos.Offset, pos.Seq + uint64(i)}
			marks = append(marks, mark{d, p, a.End().Offset})
		}
	}
	for i, d := range numbered("record", 6) {
		d += strings.Repeat("x", 7*i)
		add(put(t, a, d), d)
	}
	batch := []string{"batch 0", "", "batch 2 with more"}
	pos, err := a.AppendBatch([][]byte{[]byte(batch[0]), nil, []byte(batch[2])})
	if err != nil {
		t.Fatal(err)
	}
	add(pos, batch...)
	d := "the last record"
	add(put(t, a, d), d)
	return marks
}

// only returns the only segment of the store.
func (s *memStore) only(t testing.TB) *memFile {
	t.Helper()
	var only *memFile
	for name, f := range s.live {
		if _, ok := segmentIndex("", name); !ok {
			continue
		}
		if only != nil {
			t.Fatalf("%d files, want one segment", len(s.live))
		}
		only = f
	}
	return only
}

// stale makes the end mark as old as a power cut may leave it: the mark of the first Open.
func (s *memStore) stale(t testing.TB) {
	t.Helper()
	f := s.live[markSuffix]
	m, state, err := readMark(f)
	if state != markWhole || err != nil {
		t.Fatalf("the mark: %v, %v", state, err)
	}
	m.clean, m.end = false, Position{Segment: m.first, Offset: segmentHeaderSize, Seq: 1}
	b := make([]byte, markSlots*markSlotSize)
	for range markSlots {
		m.encode(b[m.gen%markSlots*markSlotSize:])
		m.gen++
	}
	s.add(markSuffix, b)
}

// with returns a store whose only segment has other bytes, and whose mark is stale.
func (s *memStore) with(t testing.TB, data []byte) *memStore {
	c := s.restart()
	c.add(c.only(t).name, data)
	c.stale(t)
	return c
}

// TestRecoverEveryLength truncates the segment at every byte.
// Promise: appendlog/damaged-log-error
func TestRecoverEveryLength(t *testing.T) {
	ringtest.AsksNoKernel(t)
	for _, ahead := range []int{-1, 4096} { // the rest is cut off, or filled with zeros
		s := newMemStore()
		marks := markedLog(t, s, Options{Ahead: ahead})
		data := s.only(t).data
		for cut := segmentHeaderSize; cut <= len(data); cut++ {
			torn := bytes.Clone(data[:cut])
			if ahead > 0 {
				torn = append(torn, make([]byte, 4096)...)
			}
			checkCut(t, s.with(t, torn), marks, data, torn)
		}
	}
}

// checkCut opens a truncated log, and checks that it has every intact record and no other.
func checkCut(t *testing.T, s *memStore, marks []mark, data, torn []byte) {
	t.Helper()
	logger, await := ringtest.Logger(t)
	o := Options{Ahead: -1, Logger: logger}
	a := openMem(t, s, o)
	if n := a.Recovery().Dropped; n > 0 {
		await(fmt.Sprintf("bytes=%d ", n))
	}
	var want []string
	end := int64(segmentHeaderSize)
	for _, m := range marks {
		if m.end <= int64(len(torn)) && bytes.Equal(data[:m.end], torn[:m.end]) {
			want = append(want, m.data)
			end = m.end
		}
	}
	cut := len(torn)
	if got := contents(t, a); !slices.Equal(got, want) {
		t.Fatalf("cut to %d: %q, want %q", cut, got, want)
	}
	r := a.Recovery()
	if r.End.Offset != end || r.End.Seq != uint64(len(want))+1 || r.Records != uint64(len(want)) {
		t.Fatalf("cut to %d: recovered %+v, want the end at %d", cut, r, end)
	}
	if r.Dropped != dropped(torn, end) || (r.Dropped > 0) != (r.Reason != "") {
		t.Fatalf("cut to %d: recovered %+v, want %d dropped", cut, r, dropped(torn, end))
	}
	pos := put(t, a, "afterwards")
	if pos.Offset != end || pos.Seq != uint64(len(want))+1 {
		t.Fatalf("cut to %d: the next record is at %+v", cut, pos)
	}
	mustClose(t, a)
	b := openMem(t, s.crash(rand.New(rand.NewPCG(1, 1))), o)
	defer mustClose(t, b)
	if got := contents(t, b); !slices.Equal(got, append(slices.Clone(want), "afterwards")) {
		t.Fatalf("cut to %d: after another restart %q", cut, got)
	}
}

// dropped counts the bytes behind the end, up to the last nonzero byte.
func dropped(data []byte, end int64) int64 {
	return int64(len(bytes.TrimRight(data[end:], "\x00")))
}

// TestRecoverEveryBit flips each bit of a segment. Groups before the last were durable when
// the last was written, so damage in them is an error. Damage in the last group looks like
// an interrupted write. No record ever changes.
// Promise: appendlog/damaged-log-error
func TestRecoverEveryBit(t *testing.T) {
	ringtest.AsksNoKernel(t)
	s := newMemStore()
	marks := markedLog(t, s, Options{Ahead: -1})
	data := append(s.only(t).data, make([]byte, 100)...)
	last := marks[len(marks)-1]
	for bit := 0; bit < len(data)*8; bit += ringtest.Rounds(1, 7) {
		flipped := bytes.Clone(data)
		flipped[bit/8] ^= 1 << (bit % 8)
		at := int64(bit / 8)
		a, err := tryMem(s.with(t, flipped), Options{})
		var corrupt *CorruptError
		if at < last.pos.Offset {
			if !errors.As(err, &corrupt) {
				t.Fatalf("bit %d, offset %d: %v, want a CorruptError", bit, at, err)
			}
			checkDamagePlace(t, corrupt, marks, at)
			continue
		}
		if err != nil {
			t.Fatalf("bit %d: %v", bit, err)
		}
		n, end := len(marks)-1, last.pos.Offset
		if at >= last.end {
			n, end = len(marks), last.end
		}
		got := contents(t, a)
		if len(got) != n || a.Recovery().Dropped != dropped(flipped, end) {
			t.Fatalf("bit %d: %d records, recovered %+v, want %d", bit, len(got), a.Recovery(), n)
		}
		for i := range got {
			if got[i] != marks[i].data {
				t.Fatalf("bit %d changed record %d", bit, i)
			}
		}
		mustClose(t, a)
	}
}

func checkDamagePlace(t *testing.T, e *CorruptError, marks []mark, at int64) {
	t.Helper()
	if e.At.Segment != 1 || e.Path != segmentName("", 1) || e.Reason == "" {
		t.Fatalf("the error does not name the place: %+v", e)
	}
	if at < segmentHeaderSize {
		return
	}
	for off := at; off > at-recordAlign*64; off-- { // the damaged record begins there
		if off == e.At.Offset {
			return
		}
	}
	t.Fatalf("damage at %d is reported at %d", at, e.At.Offset)
}

// TestRecoverTornGroup writes a group of several records of which any part has reached the
// disk. None of them was acknowledged, so this is not corruption, even if a later record of
// the group is intact.
func TestRecoverTornGroup(t *testing.T) {
	s := newMemStore()
	a := openMem(t, s, Options{Ahead: -1})
	put(t, a, "one", "two")
	end := a.End()
	f := s.only(t)
	before := len(f.data)
	var g group
	for _, d := range numbered("in the group", 3) {
		g.add([][]byte{[]byte(d)}, []uint32{checksum([]byte(d))}, recordSize(len(d)))
	}
	if err := a.write(&g); err != nil {
		t.Fatal(err)
	}
	torn := bytes.Clone(f.data)
	for i := before; i < before+10; i++ {
		torn[i] = 0
	}
	b := openMem(t, s.with(t, torn), Options{})
	if got := contents(t, b); !slices.Equal(got, []string{"one", "two"}) || b.End() != end {
		t.Errorf("recovered %q, end %+v, want %+v", got, b.End(), end)
	}
	// After one more group, the same damage concerns acknowledged records.
	if err := a.sync(); err != nil {
		t.Fatal(err)
	}
	put(t, a, "three")
	damaged := bytes.Clone(f.data)
	for i := before; i < before+10; i++ {
		damaged[i] = 0
	}
	var corrupt *CorruptError
	if _, err := tryMem(s.with(t, damaged), Options{}); !errors.As(err, &corrupt) || corrupt.At != end {
		t.Errorf("opening: %v, want a CorruptError at %+v", err, end)
	}
}

// TestRecoverForgetsOldGroups leaves the rest of a truncated group at the position where a
// new record ends: it must not be read as a continuation.
func TestRecoverForgetsOldGroups(t *testing.T) {
	s := newMemStore()
	a := openMem(t, s, Options{Ahead: -1})
	put(t, a, "one")
	f := s.only(t)
	before := len(f.data)
	var g group
	for range 3 {
		d := []byte("same size")
		g.add([][]byte{d}, []uint32{checksum(d)}, recordSize(len(d)))
	}
	if err := a.write(&g); err != nil {
		t.Fatal(err)
	}
	torn := bytes.Clone(f.data)
	torn[before] ^= 1
	for seed := range uint64(50) {
		c := s.with(t, torn)
		b := openMem(t, c, Options{Ahead: -1})
		put(t, b, "same size")
		d := openMem(t, c.crash(rand.New(rand.NewPCG(seed, 0))), Options{})
		if got := contents(t, d); !slices.Equal(got, []string{"one", "same size"}) {
			t.Fatalf("seed %d: %q", seed, got)
		}
	}
}

// TestRecoverAfterFailedSync makes the kernel forget the data of a failed sync, while the
// page cache still returns it.
func TestRecoverAfterFailedSync(t *testing.T) {
	s := newMemStore()
	a := openMem(t, s, Options{})
	put(t, a, "acknowledged")
	s.fault = func(c memCall) memFault {
		if c.op == "sync" {
			return memFault{err: syscall.EIO, lost: true}
		}
		return memFault{}
	}
	if _, err := a.Append([]byte("in doubt")); !errors.Is(err, syscall.EIO) {
		t.Fatalf("Append = %v, want EIO", err)
	}
	again := s.restart() // the process ends, the machine does not
	b := openMem(t, again, Options{})
	seen := contents(t, b)
	put(t, b, "later")
	c := openMem(t, again.crash(rand.New(rand.NewPCG(3, 3))), Options{})
	defer mustClose(t, c)
	if got := contents(t, c); !slices.Equal(got, append(seen, "later")) {
		t.Errorf("after the power cut %q, before it %q", got, append(seen, "later"))
	}
}

// TestRecoverSettles kills a process between write and sync, or between the renaming of a
// new segment and the sync of the directory: everything that the next process finds is then
// on the disk, and not only in memory.
func TestRecoverSettles(t *testing.T) {
	for _, op := range []string{"sync", "dirsync"} {
		for seed := range uint64(20) {
			s := newMemStore()
			a := openMem(t, s, Options{})
			put(t, a, "acknowledged")
			s.fault = func(c memCall) memFault {
				if c.op == op {
					return memFault{err: syscall.EINTR}
				}
				return memFault{}
			}
			if op == "dirsync" {
				a.Rotate()
			} else {
				a.Append([]byte("in doubt"))
			}
			s = s.restart()
			b := openMem(t, s, Options{})
			seen := contents(t, b)
			if op == "dirsync" {
				put(t, b, "in the new segment")
				seen = append(seen, "in the new segment")
			}
			c := openMem(t, s.crash(rand.New(rand.NewPCG(seed, 0))), Options{})
			if got := contents(t, c); !slices.Equal(got, seen) {
				t.Errorf("%s, seed %d: after the power cut %q, before it %q", op, seed, got, seen)
			}
			mustClose(t, c)
		}
	}
}

func TestRecoverInterruptedRotation(t *testing.T) {
	dir := t.TempDir()
	a, err := Open(dir, Options{Prefix: "x-"})
	if err != nil {
		t.Fatal(err)
	}
	put(t, a, "one")
	mustClose(t, a)
	left := filepath.Join(dir, segmentName("x-", 2)+newSuffix)
	foreign := filepath.Join(dir, "y-"+segmentName("", 2)+newSuffix)
	for _, name := range []string{left, foreign} {
		if err := os.WriteFile(name, []byte("half a header"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a, err = Open(dir, Options{Prefix: "x-"})
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, a)
	if r := a.Recovery(); r.Unfinished != 1 || r.Segments != 1 {
		t.Errorf("recovered %+v", r)
	}
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the unfinished segment still exists: %v", err)
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Errorf("a file of another log was removed: %v", err)
	}
}

func TestRecoverRefusesGaps(t *testing.T) {
	s := newMemStore()
	a := openMem(t, s, Options{})
	for _, d := range numbered("record", 4) {
		put(t, a, d)
		if err := a.Rotate(); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, a)
	cases := map[string]func(*memStore){
		"a segment is missing": func(s *memStore) { delete(s.live, segmentName("", 3)) },
		"a segment is another": func(s *memStore) { s.live[segmentName("", 3)] = s.live[segmentName("", 2)] },
		"a segment is empty":   func(s *memStore) { s.live[segmentName("", 5)].data = nil },
		"a header is damaged":  func(s *memStore) { s.live[segmentName("", 2)].data[33] ^= 4 },
	}
	for name, damage := range cases {
		t.Run(name, func(t *testing.T) {
			c := s.restart()
			damage(c)
			var corrupt *CorruptError
			if _, err := tryMem(c, Options{}); !errors.As(err, &corrupt) {
				t.Errorf("opening: %v, want a CorruptError", err)
			}
			for _, err := range readRecords(c, ReadOptions{}) {
				if errors.As(err, &corrupt) {
					return
				}
			}
			t.Error("reading found no error")
		})
	}
}

func TestOpenInUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "on the way")
	a, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrInUse) {
		t.Errorf("a second Open: %v, want ErrInUse", err)
	}
	b, err := Open(dir, Options{Prefix: "other-"})
	if err != nil {
		t.Fatalf("a second log in the directory: %v", err)
	}
	mustClose(t, b)
	mustClose(t, a)
	c, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, c)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file, Options{}); err == nil {
		t.Error("Open accepted a file as the directory")
	}
}

// TestRecoverVersionOne opens a log that v0.1.0 wrote: its records stay unchanged, and new
// ones are written to a segment of the current version.
func TestRecoverVersionOne(t *testing.T) {
	h, records := goldenParts()
	old := buildSegment(h, records, false, true, false)
	for seed := range uint64(60) { // the power fails at each call of the conversion
		s := newMemStore()
		s.add(segmentName("", 7), bytes.Clone(old))
		left := int(seed)
		s.fault = func(memCall) memFault {
			if left--; left >= 0 {
				return memFault{}
			}
			return memFault{err: errPowerCut}
		}
		a, err := tryMem(s, Options{})
		if err == nil {
			_, err = a.Append([]byte("new"))
			a.Close()
		}
		s.fault = nil
		if err != nil && !errors.Is(err, errPowerCut) {
			t.Fatal(err)
		}
		want := []string{"apple", "", "12345678"}
		if err == nil {
			want = append(want, "new")
		}
		s = s.crash(rand.New(rand.NewPCG(seed, 0)))
		b := openMem(t, s, Options{})
		if got := contents(t, b); !slices.Equal(got, want) && !slices.Equal(got, append(want, "new")) {
			t.Errorf("%d calls: records %q, want %q", seed, got, want)
		}
		if pos := put(t, b, "next"); pos.Segment < 8 || pos.Seq < 45 {
			t.Errorf("the next record is at %+v", pos)
		}
		mustClose(t, b)
		delete(s.live, markSuffix)
		if _, err := tryMem(s, Options{}); err == nil {
			t.Error("a log of the current version without its mark was opened")
		}
	}
}

// TestTrimInterrupted cuts the power at each call of a Trim: the records that were not
// trimmed are there.
func TestTrimInterrupted(t *testing.T) {
	for calls := range 12 {
		for seed := range uint64(20) {
			s := newMemStore()
			a := openMem(t, s, Options{})
			records := numbered("record", 8)
			spread(t, a, records)
			left := calls
			s.fault = func(memCall) memFault {
				if left--; left >= 0 {
					return memFault{}
				}
				return memFault{err: errPowerCut}
			}
			err := a.Trim(a.End())
			if err != nil && !errors.Is(err, errPowerCut) {
				t.Fatal(err)
			}
			s.fault = nil
			b := openMem(t, s.crash(rand.New(rand.NewPCG(seed, 0))), Options{})
			got := contents(t, b)
			if len(got) < 2 || !slices.Equal(got, records[8-len(got):]) || err == nil && len(got) != 2 {
				t.Errorf("after %d calls (%v) the records are %q", calls, err, got)
			}
			mustClose(t, b)
		}
	}
}

// TestCloseReportsTheMark makes the sync of the end mark fail at Close.
func TestCloseReportsTheMark(t *testing.T) {
	s := newMemStore()
	a := openMem(t, s, Options{})
	put(t, a, "one")
	s.fault = func(c memCall) memFault {
		if c.op == "mark sync" {
			return memFault{err: syscall.EIO}
		}
		return memFault{}
	}
	if err := a.Close(); !errors.Is(err, syscall.EIO) {
		t.Errorf("Close = %v, want EIO", err)
	}
	s.fault = nil
	b := openMem(t, s.restart(), Options{})
	if got := contents(t, b); !slices.Equal(got, []string{"one"}) {
		t.Errorf("records %q", got)
	}
	mustClose(t, b)
}

// TestSealShowsLostSegment deletes the last segment while the end mark is older than it:
// the seal of the segment before it shows the loss.
func TestSealShowsLostSegment(t *testing.T) {
	s := newMemStore()
	a := openMem(t, s, Options{})
	put(t, a, "one")
	if err := a.Rotate(); err != nil {
		t.Fatal(err)
	}
	put(t, a, "two")
	mustClose(t, a)
	s.stale(t)
	delete(s.live, segmentName("", 2))
	var corrupt *CorruptError
	if _, err := tryMem(s, Options{}); !errors.As(err, &corrupt) || corrupt.Reason != "segment 2 is missing behind it" {
		t.Errorf("Open = %v, want that segment 2 is missing", err)
	}
	var last error
	for _, last = range readRecords(s, ReadOptions{}) {
	}
	if !errors.As(last, &corrupt) || corrupt.Reason != "segment 2 is missing behind it" {
		t.Errorf("reading ends with %v, want that segment 2 is missing", last)
	}
}

// SPDX-License-Identifier: MIT

package appendlog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// spread writes records to several segments and returns their positions.
func spread(t testing.TB, a *Log, records []string) (at []Position) {
	t.Helper()
	for i, d := range records {
		at = append(at, put(t, a, d))
		if i%3 == 2 {
			if err := a.Rotate(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return at
}

// TestRecordsFrom reads from each position, also from the ends of segments.
func TestRecordsFrom(t *testing.T) {
	s := newMemStore()
	a := openMem(t, s, Options{})
	want := numbered("record", 10)
	var ends []Position
	for i, d := range want {
		ends = append(ends, a.End())
		put(t, a, d)
		if i%3 == 2 {
			ends = append(ends, a.End()) // the end of a segment that is then sealed
			if err := a.Rotate(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, from := range append(ends, a.End()) {
		var got, outside []string
		for r, err := range a.Records(from) {
			if err != nil {
				t.Fatalf("from %+v: %v", from, err)
			}
			got = append(got, string(r.Data))
		}
		for r, err := range readRecords(s, ReadOptions{From: from}) {
			if err != nil {
				t.Fatalf("from %+v: %v", from, err)
			}
			outside = append(outside, string(r.Data))
		}
		if rest := want[from.Seq-1:]; !slices.Equal(got, rest) || !slices.Equal(outside, rest) {
			t.Errorf("from %+v: %q and %q, want %q", from, got, outside, rest)
		}
	}
	for range a.Records(Position{}) {
		break // a caller may end an iteration early
	}
	wrong := []Position{{1, segmentHeaderSize + 8, 1}, {1, segmentHeaderSize, 2}, {9, segmentHeaderSize, 1}}
	for _, from := range wrong {
		failed := false
		for _, err := range a.Records(from) {
			var corrupt *CorruptError
			failed = errors.As(err, &corrupt) || errors.Is(err, fs.ErrNotExist)
		}
		if !failed {
			t.Errorf("from %+v, which is no position of a record: no error", from)
		}
	}
	mustClose(t, a)
}

// TestReadFromTrimmedEnd reads from the end of a segment that was trimmed. No record after
// that position is missing.
func TestReadFromTrimmedEnd(t *testing.T) {
	s := newMemStore()
	a := openMem(t, s, Options{})
	one := put(t, a, "one")
	end := a.End()
	if err := a.Rotate(); err != nil {
		t.Fatal(err)
	}
	put(t, a, "two")
	if err := a.Trim(end); err != nil {
		t.Fatal(err)
	}
	for from, want := range map[Position]string{end: "two <nil>", one: " " + fs.ErrNotExist.Error()} {
		for way, records := range map[string]iter.Seq2[Record, error]{
			"Records": a.Records(from), "Read": readRecords(s, ReadOptions{From: from}),
		} {
			var got []string
			for r, err := range records {
				if errors.Is(err, fs.ErrNotExist) {
					err = fs.ErrNotExist
				}
				got = append(got, fmt.Sprintf("%s %v", r.Data, err))
			}
			if !slices.Equal(got, []string{want}) {
				t.Errorf("%s from %+v: %q, want %q", way, from, got, want)
			}
		}
	}
	mustClose(t, a)
}

// trimmingStore trims a log after a reader's first list of the files.
type trimmingStore struct {
	*memStore
	once sync.Once
	trim func()
}

func (s *trimmingStore) List() ([]string, error) {
	names, err := s.memStore.List()
	s.once.Do(s.trim)
	return names, err
}

// TestReadDuringTrim reads from a position behind the segments that are removed meanwhile.
func TestReadDuringTrim(t *testing.T) {
	s := newMemStore()
	a := openMem(t, s, Options{})
	at := spread(t, a, numbered("record", 7))
	from := at[6]
	st := &trimmingStore{memStore: s, trim: func() {
		if err := a.Trim(from); err != nil {
			t.Error(err)
		}
	}}
	var got []string
	for r, err := range readRecords(st, ReadOptions{From: from}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(r.Data))
	}
	if !slices.Equal(got, []string{"record 6"}) || len(a.Segments()) != 1 {
		t.Errorf("got %q, %d segments are left", got, len(a.Segments()))
	}
	mustClose(t, a)
}

// TestReadMissingFile reads a log one of whose names leads to no file.
func TestReadMissingFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("nowhere", filepath.Join(dir, segmentName("", 1))); err != nil {
		t.Skipf("needs symbolic links: %v", err)
	}
	failed := false
	for _, err := range Read(dir, ReadOptions{}) {
		failed = errors.Is(err, fs.ErrNotExist)
	}
	if !failed {
		t.Error("no error")
	}
}

func TestReadOfNothing(t *testing.T) {
	for range Read(t.TempDir(), ReadOptions{}) {
		t.Error("reading an empty directory returned a record")
	}
	failed := false
	for _, err := range Read(t.TempDir()+"/missing", ReadOptions{}) {
		failed = errors.Is(err, fs.ErrNotExist)
	}
	if !failed {
		t.Error("reading a missing directory returned no error")
	}
}

// TestReadDuringAppends reads through the log and from outside while other goroutines
// append and rotate: each reader sees a prefix of the log.
func TestReadDuringAppends(t *testing.T) {
	dir := t.TempDir()
	a, err := Open(dir, Options{SegmentSize: 16 << 10, Ahead: 8 << 10})
	if err != nil {
		t.Fatal(err)
	}
	l := newLedger()
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(done)
		l.load(t, a, 8, ringtest.Rounds(100, 30))
	})
	for from := range 2 {
		wg.Go(func() {
			for running := true; running; {
				select {
				case <-done:
					running = false
				default:
				}
				begin := a.End().Seq
				next := uint64(1)
				records := a.Records(Position{})
				if from == 1 {
					records = Read(dir, ReadOptions{})
				}
				for r, err := range records {
					if err != nil {
						t.Errorf("reader %d: %v", from, err)
						return
					}
					if r.Seq != next {
						t.Errorf("reader %d: record %d, want %d", from, r.Seq, next)
					}
					next++
				}
				if next < begin {
					t.Errorf("reader %d got %d records, want the %d durable ones", from, next-1, begin-1)
				}
			}
		})
	}
	wg.Wait()
	l.check(t, a)
	mustClose(t, a)
}

// rotatingStore rotates a log between a reader's query of the size of a segment and its
// read of the seal.
type rotatingStore struct {
	*memStore
	once   sync.Once
	rotate func()
}

func (s *rotatingStore) Open(name string, write bool) (segmentFile, error) {
	f, err := s.memStore.Open(name, write)
	if err != nil || strings.HasSuffix(name, markSuffix) {
		return f, err
	}
	return &rotatingFile{f, s}, nil
}

type rotatingFile struct {
	segmentFile
	store *rotatingStore
}

func (f *rotatingFile) Size() (int64, error) {
	n, err := f.segmentFile.Size()
	f.store.once.Do(f.store.rotate)
	return n, err
}

// TestReadWhileSealed reads a segment whose zeros are cut off meanwhile.
func TestReadWhileSealed(t *testing.T) {
	s := newMemStore()
	a := openMem(t, s, Options{})
	want := numbered("record", 5)
	for _, d := range want {
		put(t, a, d)
	}
	rotated := false
	st := &rotatingStore{memStore: s, rotate: func() {
		if err := a.Rotate(); err != nil {
			t.Error(err)
		}
		rotated = true
	}}
	var got []string
	for r, err := range readRecords(st, ReadOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(r.Data))
	}
	if !slices.Equal(got, want) || !rotated {
		t.Errorf("got %q, want %q", got, want)
	}
	mustClose(t, a)
}

// salvage returns the readable records, and the damage.
func salvage(t *testing.T, s *memStore) (got []string, damage []*CorruptError) {
	t.Helper()
	for r, err := range readRecords(s, ReadOptions{Salvage: true}) {
		if err == nil {
			got = append(got, string(r.Data))
			continue
		}
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) {
			t.Fatal(err)
		}
		damage = append(damage, corrupt)
	}
	return got, damage
}

func TestSalvage(t *testing.T) {
	s := newMemStore()
	a := openMem(t, s, Options{})
	want := numbered("record", 11)
	at := spread(t, a, want)
	mustClose(t, a)
	without := func(drop ...int) (left []string) {
		for i, d := range want {
			if !slices.Contains(drop, i) {
				left = append(left, d)
			}
		}
		return left
	}
	file := func(s *memStore, i int) *memFile { return s.live[segmentName("", at[i].Segment)] }
	cases := []struct {
		name   string
		damage func(*memStore)
		want   []string
		lost   []uint64
	}{
		{"nothing", func(*memStore) {}, want, nil},
		{"a torn tail", func(s *memStore) {
			f := file(s, 10)
			f.data = append(f.data, "half a record"...)
		}, want, nil},
		{"a payload", func(s *memStore) { file(s, 4).data[at[4].Offset+recordHeaderSize] ^= 1 }, without(4), []uint64{1}},
		{"a header", func(s *memStore) { file(s, 1).data[at[1].Offset] ^= 1 }, without(1), []uint64{1}},
		{"two in one segment", func(s *memStore) {
			file(s, 3).data[at[3].Offset] ^= 1
			file(s, 5).data[at[5].Offset+recordHeaderSize] ^= 1
		}, without(3, 5), []uint64{1, 1}},
		{"the end of a sealed segment", func(s *memStore) {
			f := file(s, 5)
			f.data = f.data[:at[4].Offset+5]
		}, without(4, 5), []uint64{2}},
		{"a sealed segment emptied", func(s *memStore) {
			f := file(s, 5)
			f.data = f.data[:segmentHeaderSize]
		}, without(3, 4, 5), []uint64{3}},
		{"a segment that is gone", func(s *memStore) { delete(s.live, segmentName("", 2)) }, without(3, 4, 5), []uint64{3}},
		{"a segment's salt", func(s *memStore) { file(s, 3).data[33] ^= 1 }, want, []uint64{0}},
		{"a segment's checksum", func(s *memStore) { file(s, 3).data[61] ^= 1 }, want, []uint64{0}},
		{"the first segment's header", func(s *memStore) { file(s, 0).data[0] ^= 1 }, want, []uint64{0}},
		{"the last segment's header", func(s *memStore) { file(s, 10).data[0] ^= 1 }, want, []uint64{0}},
		{"a record of the last segment", func(s *memStore) { file(s, 9).data[at[9].Offset] ^= 1 }, without(9), []uint64{1}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			damaged := s.restart()
			c.damage(damaged)
			got, damage := salvage(t, damaged)
			var lost []uint64
			for _, e := range damage {
				lost = append(lost, e.Lost)
			}
			if !slices.Equal(got, c.want) || !slices.Equal(lost, c.lost) {
				t.Errorf("read %q, lost %v, want %q and %v", got, lost, c.want, c.lost)
			}
			for _, e := range damage {
				if !strings.Contains(e.Error(), e.Path) {
					t.Errorf("the error does not name the file: %v", e)
				}
			}
			checkReadStops(t, damaged, c.want, len(c.lost) > 0)
		})
	}
}

// checkReadStops reads without salvage: the records up to the damage, and then an error.
func checkReadStops(t *testing.T, s *memStore, want []string, damaged bool) {
	t.Helper()
	var corrupt *CorruptError
	var got []string
	for r, err := range readRecords(s, ReadOptions{}) {
		if corrupt != nil {
			t.Error("a record follows the error")
		}
		if err == nil {
			got = append(got, string(r.Data))
		} else if !errors.As(err, &corrupt) {
			t.Fatal(err)
		}
	}
	if (corrupt != nil) != damaged {
		t.Errorf("reading ended with %v, the damage is at %v", corrupt, damaged)
	}
	if len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
		t.Errorf("reading returned %q", got)
	}
}

// TestPayloadIsNotSearched puts bytes that look like records into payloads: a damaged
// record must not make a reader return them.
func TestPayloadIsNotSearched(t *testing.T) {
	s := newMemStore()
	a := openMem(t, s, Options{Ahead: -1})
	put(t, a, "one")
	f := s.only(t)
	// Forge records for exactly the positions that they will have in the payload.
	end := a.End()
	var forged []byte
	at := end.Offset + recordHeaderSize
	for i := range uint64(3) {
		p := []byte("a forged record")
		forged = appendRecord(forged, recordHeader{length: len(p), seq: end.Seq + 5 + i, payload: checksum(p)}, p,
			a.seg.seed, at+int64(len(forged)))
	}
	put(t, a, string(forged))
	torn := bytes.Clone(f.data)
	torn[len(torn)-1] ^= 1 // in the payload
	b := openMem(t, s.with(t, torn), Options{})
	if got := contents(t, b); !slices.Equal(got, []string{"one"}) {
		t.Errorf("records %q", got)
	}
	mustClose(t, b)
	mustClose(t, a)
}

// TestReaderSeesZerosCutOff seals a segment while it is scanned: the file becomes shorter
// than the reader expects.
func TestReaderSeesZerosCutOff(t *testing.T) {
	h, records := goldenParts()
	seg := buildSegment(h, records)
	_, seed, _ := decodeSegmentHeader(seg)
	s := scanner{f: bytes.NewReader(seg), size: int64(len(seg)) + 1<<20, seed: seed}
	tl, err := s.scanTail(h.firstSeq)
	if err != nil || tl.end != int64(len(seg)) || tl.dropped != 0 || tl.damaged {
		t.Errorf("scanned %+v, %v, want the end at %d", tl, err, len(seg))
	}
	broken := errors.New("broken")
	s = scanner{f: brokenReader{broken}, size: 1000, seed: seed}
	if _, err := s.scanTail(h.firstSeq); !errors.Is(err, broken) {
		t.Errorf("an error of reading became %v", err)
	}
}

// staleReader returns the old content of the file first, and then the current content.
type staleReader struct {
	stale, fresh []byte
	reads        int
}

func (r *staleReader) ReadAt(p []byte, off int64) (int, error) {
	r.reads++
	if r.reads == 1 {
		return bytes.NewReader(r.stale).ReadAt(p, off)
	}
	return bytes.NewReader(r.fresh).ReadAt(p, off)
}

// TestReaderLooksAgain makes a reader pass a position before a record is written there, and
// the next position before the record after it is written.
func TestReaderLooksAgain(t *testing.T) {
	h, records := goldenParts()
	seg := buildSegment(h, records)
	_, seed, _ := decodeSegmentHeader(seg)
	early := bytes.Clone(seg)
	clear(early[segmentHeaderSize : segmentHeaderSize+recordSize(len(records[0]))])
	s := scanner{f: &staleReader{stale: early, fresh: seg}, size: int64(len(seg)), seed: seed}
	if tl, err := s.scanTail(h.firstSeq); err != nil || tl.damaged || tl.records != uint64(len(records)) {
		t.Errorf("scanned %+v, %v, want %d records", tl, err, len(records))
	}
	s = scanner{f: bytes.NewReader(early), size: int64(len(seg)), seed: seed}
	if tl, err := s.scanTail(h.firstSeq); err != nil || !tl.damaged || tl.end != segmentHeaderSize {
		t.Errorf("scanned %+v, %v, want damage", tl, err)
	}
}

type brokenReader struct{ err error }

func (r brokenReader) ReadAt([]byte, int64) (int, error) { return 0, r.err }

// SPDX-License-Identifier: MIT

package appendlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func TestSegmentNames(t *testing.T) {
	for _, index := range []uint64{1, 255, 1 << 63} {
		name := segmentName("p-", index)
		if got, ok := segmentIndex("p-", name); got != index || !ok {
			t.Errorf("%s is segment %d, %v, want %d", name, got, ok, index)
		}
	}
	for _, name := range []string{"", "p-", "p-1.seg", segmentName("q-", 1), segmentName("p-", 0), segmentName("p-p-", 1),
		segmentName("p-", 1) + newSuffix, strings.ToUpper(segmentName("p-", 10)), "p-lock"} {
		if index, ok := segmentIndex("p-", name); ok {
			t.Errorf("%q was parsed as segment %d", name, index)
		}
	}
}

// TestRotateUnderLoad rotates by size and on request while other goroutines append, and
// trims the old segments.
func TestRotateUnderLoad(t *testing.T) {
	var mu sync.Mutex
	var sealed []SegmentInfo
	dir := t.TempDir()
	a, err := Open(dir, Options{SegmentSize: 8 << 10, OnRotate: func(i SegmentInfo) {
		mu.Lock()
		defer mu.Unlock()
		sealed = append(sealed, i)
	}})
	if err != nil {
		t.Fatal(err)
	}
	l := newLedger()
	var wg sync.WaitGroup
	wg.Go(func() { l.load(t, a, 16, 60) })
	for range 10 {
		wg.Go(func() {
			if err := a.Rotate(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	l.check(t, a)
	segs := a.Segments()
	if n := int(a.Stats().Rotations); len(sealed) != n || len(segs) != n+1 || n < 5 {
		t.Errorf("%d rotations, %d reported, %d segments", n, len(sealed), len(segs))
	}
	slices.SortFunc(sealed, func(a, b SegmentInfo) int { return int(a.Index) - int(b.Index) })
	for i, info := range sealed {
		st, err := os.Stat(info.Path)
		if err != nil || st.Size() != info.Size || info.Size > 8<<10 || info != segs[i] {
			t.Errorf("sealed %+v, listed as %+v: %v, %v", info, segs[i], st, err)
		}
	}
	mustClose(t, a)
	b, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, b)
	l.check(t, b)
}

func TestRotateEmptyDoesNothing(t *testing.T) {
	a := openMem(t, newMemStore(), Options{})
	defer mustClose(t, a)
	for range 3 {
		if err := a.Rotate(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(a.Segments()); n != 1 {
		t.Errorf("%d segments, want 1", n)
	}
}

// TestOnRotateMayAppend uses the log in the callback.
func TestOnRotateMayAppend(t *testing.T) {
	var a *Log
	a = openMem(t, newMemStore(), Options{OnRotate: func(i SegmentInfo) {
		if _, err := a.Append(fmt.Appendf(nil, "sealed %d", i.Index)); err != nil {
			t.Error(err)
		}
	}})
	put(t, a, "one")
	if err := a.Rotate(); err != nil {
		t.Fatal(err)
	}
	if got := contents(t, a); !slices.Equal(got, []string{"one", "sealed 1"}) {
		t.Errorf("records %q", got)
	}
	mustClose(t, a)
}

func TestTrim(t *testing.T) {
	s := newMemStore()
	a := openMem(t, s, Options{})
	var at []Position
	for i, d := range numbered("record", 9) {
		at = append(at, put(t, a, d))
		if i%2 == 1 {
			if err := a.Rotate(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		before Position
		first  uint64 // the first segment that is left
	}{{Position{}, 1}, {at[0], 1}, {at[1], 1}, {at[2], 2}, {at[5], 3}, {at[4], 3}, {Position{Seq: 1000}, 5}} {
		if err := a.Trim(c.before); err != nil {
			t.Fatal(err)
		}
		if got := a.Segments()[0].Index; got != c.first {
			t.Errorf("after Trim(%+v) segment %d is the first, want %d", c.before, got, c.first)
		}
		if got := after(s.disk.Least()); len(got.live) != len(s.live) {
			t.Errorf("after Trim(%+v) the directory is not synced", c.before)
		}
	}
	for _, err := range a.Records(at[0]) {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("reading trimmed records: %v", err)
		}
	}
	if got := contents(t, a); !slices.Equal(got, []string{"record 8"}) {
		t.Errorf("records %q", got)
	}
	mustClose(t, a)
	b := openMem(t, s, Options{})
	defer mustClose(t, b)
	if pos := put(t, b, "next"); pos.Seq != 10 {
		t.Errorf("the next number is %d, want 10", pos.Seq)
	}
}

// TestTrimFails makes a removal fail: the log continues to work, and trims later.
func TestTrimFails(t *testing.T) {
	s := newMemStore()
	a := openMem(t, s, Options{})
	put(t, a, "one")
	if err := a.Rotate(); err != nil {
		t.Fatal(err)
	}
	for _, op := range []string{"remove", "dirsync"} {
		s.fault = func(c memCall) memFault {
			if c.op == op {
				return memFault{err: syscall.EIO}
			}
			return memFault{}
		}
		if err := a.Trim(a.End()); !errors.Is(err, syscall.EIO) {
			t.Errorf("Trim with a failing %s: %v", op, err)
		}
	}
	s.fault = nil
	put(t, a, "two")
	if err := a.Trim(a.End()); err != nil || len(a.Segments()) != 1 {
		t.Errorf("Trim afterwards: %v, %d segments", err, len(a.Segments()))
	}
	mustClose(t, a)
}

// TestSegmentsAreCutToSize checks the sizes of the files after rotation and Close.
func TestSegmentsAreCutToSize(t *testing.T) {
	dir := t.TempDir()
	a, err := Open(dir, Options{Ahead: 100 << 10})
	if err != nil {
		t.Fatal(err)
	}
	size := func(index uint64) int64 {
		st, err := os.Stat(filepath.Join(dir, segmentName("", index)))
		if err != nil {
			t.Fatal(err)
		}
		return st.Size()
	}
	put(t, a, "one")
	if got := size(1); got < 100<<10 {
		t.Errorf("the segment in use has %d bytes, want the zeros ahead", got)
	}
	if err := a.Rotate(); err != nil {
		t.Fatal(err)
	}
	put(t, a, "two")
	mustClose(t, a)
	for index := range uint64(2) {
		want := segmentHeaderSize + recordSize(3)
		if index == 0 {
			want += sealSize
		}
		if got := size(index + 1); got != want {
			t.Errorf("segment %d has %d bytes, want %d", index+1, got, want)
		}
	}
}

// SPDX-License-Identifier: MIT

package appendlog

import (
	"log/slog"
	"slices"
	"strconv"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// harms damage a segment of two records of 32 bytes.
var harms = []struct {
	name string
	do   func(s *memStore, segment string) error
}{
	{"none", func(*memStore, string) error { return nil }},
	{"gone", (*memStore).Remove},
	{"empty", cutTo(0)},
	{"in the first record", cutTo(80)},
	{"after the first record", cutTo(96)},
	{"before the seal", cutTo(128)},
	{"header", damageHeader},
	{"header and end", func(s *memStore, segment string) error {
		if err := damageHeader(s, segment); err != nil {
			return err
		}
		return cutTo(96)(s, segment)
	}},
}

// cutTo returns a damage that cuts a segment to a size.
func cutTo(size int64) func(s *memStore, segment string) error {
	return func(s *memStore, segment string) error {
		return change(s, segment, func(f segmentFile) error { return f.Truncate(size) })
	}
}

func damageHeader(s *memStore, segment string) error {
	return change(s, segment, func(f segmentFile) error { return writeFull(f, []byte("xx"), 3) })
}

// change changes a file durably.
func change(s *memStore, name string, do func(f segmentFile) error) error {
	f, err := s.Open(name, true)
	if err == nil {
		err = do(f)
	}
	if err == nil {
		err = f.Sync(true)
	}
	return err
}

// pairs returns the store of a log with two records in each of n segments.
func pairs(t *testing.T, o Options, n int) *memStore {
	t.Helper()
	s := newMemStore()
	a := openMem(t, s, o)
	for i := range n {
		if i > 0 {
			if err := a.Rotate(); err != nil {
				t.Fatal(err)
			}
		}
		put(t, a, "old "+strconv.Itoa(2*i), "old "+strconv.Itoa(2*i+1))
	}
	mustClose(t, a)
	return s
}

// TestAcceptEveryDamage harms each of three segments in each way, with the end mark and
// without it, and opens the log with AcceptLoss. All records that Salvage finds, and new
// ones, can be read without an error, then and later.
func TestAcceptEveryDamage(t *testing.T) {
	ringtest.AsksNoKernel(t)
	quiet := Options{Logger: slog.New(slog.DiscardHandler)}
	accepting := quiet
	accepting.AcceptLoss = true
	for c := range len(harms) * len(harms) * len(harms) * 2 {
		s := pairs(t, quiet, 3)
		what, left := "", c
		for i := range 3 {
			d := harms[left%len(harms)]
			left /= len(harms)
			what += d.name + ", "
			if err := d.do(s, segmentName("", uint64(i+1))); err != nil {
				t.Fatal(err)
			}
		}
		if left > 0 {
			what += "no mark"
			if err := s.Remove(markSuffix); err != nil {
				t.Fatal(err)
			}
		}
		want, _ := salvage(t, s)
		for i, o := range []Options{accepting, quiet} {
			a, err := tryMem(s, o)
			if err != nil {
				t.Errorf("%s: opening %d: %v", what, i, err)
				break
			}
			want = append(want, "new "+strconv.Itoa(i))
			put(t, a, want[len(want)-1])
			var got []string
			for r, err := range a.Records(Position{}) {
				if err != nil {
					t.Errorf("%s: opening %d: %v", what, i, err)
				}
				got = append(got, string(r.Data))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: opening %d: %q, want %q", what, i, got, want)
			}
			mustClose(t, a)
		}
	}
}

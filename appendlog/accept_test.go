// SPDX-License-Identifier: MIT

package appendlog

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/powercut"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// harms damage a segment of two records of 32 bytes.
var harms = []struct {
	name string
	left int // readable records
	do   func(s *memStore, segment string) error
}{
	{"none", 2, func(*memStore, string) error { return nil }},
	{"gone", 0, (*memStore).Remove},
	{"empty", 0, cutTo(0)},
	{"in the first record", 0, cutTo(80)},
	{"after the first record", 1, cutTo(96)},
	{"before the seal", 2, cutTo(128)},
	{"header", 2, damageHeader},
	{"header and end", 1, func(s *memStore, segment string) error {
		if err := damageHeader(s, segment); err != nil {
			return err
		}
		return cutTo(96)(s, segment)
	}},
	{"of a log with lower numbers", 0, swap(1)},
	{"of a log with higher numbers", 0, swap(1000)},
}

// swap returns a damage that replaces a segment by one of another log, whose numbers begin
// with seq.
func swap(seq uint64) func(s *memStore, segment string) error {
	return func(s *memStore, segment string) error {
		index, _ := segmentIndex("", segment)
		b, _ := segmentHeader{version: segmentVersion, log: 1, index: index, firstSeq: seq}.encode()
		return change(s, segment, func(f segmentFile) error {
			if err := f.Truncate(0); err != nil {
				return err
			}
			return writeFull(f, b, 0)
		})
	}
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

// TestAcceptEveryDamage damages each of three segments in each way, with the end mark and
// without it, and opens the log with AcceptLoss. All records that are left, and new ones,
// can be read without an error, then and later. Trim removes none of them that it should
// keep.
// Promise: appendlog/records-known-durable
func TestAcceptEveryDamage(t *testing.T) {
	ringtest.AsksNoKernel(t)
	// One of three, whose damages are all, because their number is no multiple of three.
	for c := 0; c < len(harms)*len(harms)*len(harms)*2; c += ringtest.Rounds(1, 3) {
		s := pairs(t, Options{}, 3)
		what, rest := "", c
		var left []string
		for i := range 3 {
			h := harms[rest%len(harms)]
			rest /= len(harms)
			what += h.name + ", "
			for n := range h.left {
				left = append(left, "old "+strconv.Itoa(2*i+n))
			}
			if err := h.do(s, segmentName("", uint64(i+1))); err != nil {
				t.Fatal(err)
			}
		}
		if rest > 0 {
			if strings.Contains(what, "of a log") {
				continue // without a mark each of the logs may be the right one
			}
			what += "no mark"
			if err := s.Remove(markSuffix); err != nil {
				t.Fatal(err)
			}
		}
		if err := acceptAndUse(t, s, left); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// acceptAndUse opens a log with AcceptLoss, and again without it, and compares its records.
func acceptAndUse(t *testing.T, s *memStore, want []string) error {
	t.Helper()
	if got, _ := salvage(t, s); !slices.Equal(got, want) {
		return fmt.Errorf("salvage finds %q, want %q", got, want)
	}
	for _, accept := range []bool{true, false} {
		a, err := tryMem(s, Options{AcceptLoss: accept, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return fmt.Errorf("AcceptLoss=%v: %w", accept, err)
		}
		want = append(want, fmt.Sprintf("new %v", accept))
		put(t, a, want[len(want)-1])
		trimmed := func(d string) bool { return false }
		if !accept {
			if err := a.Trim(Position{Seq: 3}); err != nil { // at old 2
				return err
			}
			trimmed = func(d string) bool { return d == "old 0" || d == "old 1" }
			want = slices.DeleteFunc(want, trimmed)
		}
		var got []string
		for r, err := range a.Records(Position{}) {
			if err != nil {
				return fmt.Errorf("AcceptLoss=%v: after %q: %w", accept, got, err)
			}
			if !trimmed(string(r.Data)) {
				got = append(got, string(r.Data))
			}
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("AcceptLoss=%v: %q, want %q", accept, got, want)
		}
		if err := a.Close(); err != nil {
			return err
		}
	}
	return nil
}

// TestKillThenPowerCutAcceptingLoss kills an Open with AcceptLoss at each of its calls,
// opens the log again, appends to it, and cuts the power. From the first acknowledged
// record on, the log opens without AcceptLoss.
// Promise: appendlog/records-known-durable
func TestKillThenPowerCutAcceptingLoss(t *testing.T) {
	ringtest.AsksNoKernel(t)
	quiet := Options{Logger: slog.New(slog.DiscardHandler)}
	for i, d := range harms {
		if i == 0 {
			continue
		}
		segments := []uint64{1, 2, 3}
		if !ringtest.Long() {
			segments = segments[i%3:][:1]
		}
		for _, segment := range segments {
			for calls, killed := 0, true; killed; calls++ {
				s := pairs(t, quiet, 3)
				if err := d.do(s, segmentName("", segment)); err != nil {
					t.Fatal(err)
				}
				s.synced(0, ".")
				killed = killAccepting(t, s, calls)
				if t.Failed() {
					t.Fatalf("%s of segment %d, killed after %d calls", d.name, segment, calls)
				}
			}
		}
	}
}

// killAccepting kills an Open of a damaged log. It reports whether the Open made so many
// calls.
func killAccepting(t *testing.T, s *memStore, calls int) (killed bool) {
	t.Helper()
	quiet := Options{Logger: slog.New(slog.DiscardHandler)}
	accepting := quiet
	accepting.AcceptLoss = true
	left := calls
	s.fault = func(memCall) memFault {
		if left--; left >= 0 {
			return memFault{}
		}
		return memFault{err: errPowerCut}
	}
	_, err := tryMem(s, accepting)
	killed = err != nil
	s = s.restart()
	before := len(s.disk.Ops)
	a := openMem(t, s, accepting)
	for i := range 2 {
		put(t, a, "new "+strconv.Itoa(i))
		s.ask(powercut.Op{Kind: powercut.Ack, Name: "new", Off: int64(i + 1)})
	}
	step := ringtest.Rounds(1, 6) // another sixth of the cuts for each call that is the last one
	for cut := before + calls%step; cut <= len(s.disk.Ops); cut += step {
		trace := s.disk
		trace.Ops = trace.Ops[:cut]
		for _, state := range []*powercut.State{trace.Least(), trace.Random(rand.New(rand.NewPCG(uint64(cut), uint64(calls))))} {
			o := accepting
			if state.Acked["new"] > 0 {
				o = quiet
			}
			if err := hasNew(after(state), o, state.Acked["new"]); err != nil {
				t.Errorf("cut %d: %v", cut, err)
			}
		}
	}
	return killed
}

// hasNew opens a log and returns an error unless it has that many new records.
func hasNew(s *memStore, o Options, want int) error {
	a, err := tryMem(s, o)
	if err != nil {
		return err
	}
	defer a.Close()
	got := 0
	for r, err := range a.Records(Position{}) {
		if err != nil {
			return err
		}
		if strings.HasPrefix(string(r.Data), "new ") {
			got++
		}
	}
	if got < want {
		return fmt.Errorf("%d new records, %d were acknowledged", got, want)
	}
	return nil
}

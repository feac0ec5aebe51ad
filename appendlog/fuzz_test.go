// SPDX-License-Identifier: MIT

package appendlog

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

// FuzzOpen opens a directory with two segments of any content, with valid headers or not,
// as a log of format 1, or of format 2 with its end mark. Open returns a CorruptError and
// changes nothing, or it returns a log that works: the readable records stay readable, and
// appended records come last. Opening does not read the first segment, so readers find
// damage there. With AcceptLoss Open always returns a log that works, and no record gets a
// number that was used before.
// Promise: appendlog/damaged-log-error
// Promise: appendlog/records-known-durable
func FuzzOpen(f *testing.F) {
	h, records := goldenParts()
	whole := buildSegment(h, records)[segmentHeaderSize:]
	f.Add(whole, whole, true, true, true)
	f.Add(whole, whole[:len(whole)-5], true, true, false)
	f.Add([]byte{}, make([]byte, 100), true, true, true)
	f.Add([]byte("RSLG"), whole, false, true, false)
	f.Fuzz(func(t *testing.T, first, last []byte, firstHead, lastHead, old bool) {
		s := newMemStore()
		const log = 9
		if !old {
			b := make([]byte, markSlots*markSlotSize)
			endMark{gen: 2, log: log, first: 7, end: Position{7, segmentHeaderSize, 42}}.encode(b)
			s.add(markSuffix, b)
		}
		for i, body := range [][]byte{first, last} {
			data := bytes.Clone(body)
			if i == 0 && firstHead || i == 1 && lastHead {
				h := segmentHeader{version: 2, log: log, index: uint64(7 + i), firstSeq: uint64(42 + 3*i), salt: h.salt, created: h.created}
				if old {
					h.version, h.log = 1, 0
				}
				head, _ := h.encode()
				data = append(head, data...)
			}
			s.add(segmentName("", uint64(7+i)), data)
		}
		before, damage := readable(s, false)
		a, err := tryMem(s, Options{})
		if err != nil {
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) {
				t.Fatal(err)
			}
			if now, _ := readable(s, false); !slices.Equal(now, before) {
				t.Fatalf("%d records, after the refusal %d", len(before), len(now))
			}
			acceptAnything(t, s)
			return
		}
		if _, err := a.Append([]byte("next")); err != nil {
			t.Fatal(err)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		now, err := readable(s, damage != nil)
		if len(now) == 0 || now[len(now)-1] != "next" || damage == nil && (err != nil || !slices.Equal(now, append(before, "next"))) {
			t.Fatalf("%d records (%v), then %d (%v), want one more", len(before), damage, len(now), err)
		}
	})
}

// acceptAnything opens a refused log with AcceptLoss.
func acceptAnything(t *testing.T, s *memStore) {
	t.Helper()
	highest := uint64(0)
	for r, err := range readRecords(s, ReadOptions{Salvage: true}) {
		if err == nil {
			highest = max(highest, r.Seq)
		}
	}
	a, err := tryMem(s, Options{AcceptLoss: true})
	if err != nil {
		t.Fatalf("with AcceptLoss: %v", err)
	}
	if pos, err := a.Append([]byte("next")); err != nil || pos.Seq <= highest {
		t.Fatalf("with AcceptLoss the next record is at %+v, %v; the last was record %d", pos, err, highest)
	}
	mustClose(t, a)
	a = openMem(t, s, Options{})
	mustClose(t, a)
}

// readable returns the records up to the first damage; with salvage it returns all.
func readable(s *memStore, salvage bool) (records []string, damage error) {
	for r, err := range readRecords(s, ReadOptions{Salvage: salvage}) {
		switch {
		case err == nil:
			records = append(records, string(r.Data))
		case !salvage:
			return records, err
		}
	}
	return records, nil
}

// SPDX-License-Identifier: MIT

package appendlog

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

// FuzzOpen has a directory with two segments of anything below true headers,
// or not, opened as a log. That ends with a CorruptError that changed nothing, or with a
// log that goes on: what was readable is, and what is appended comes last. Opening does
// not look into the first segment, so damage there is for readers to find.
func FuzzOpen(f *testing.F) {
	h, records := goldenParts()
	whole := buildSegment(h, records)[segmentHeaderSize:]
	f.Add(whole, whole, true, true)
	f.Add(whole, whole[:len(whole)-5], true, true)
	f.Add([]byte{}, make([]byte, 100), true, true)
	f.Add([]byte("RSLG"), whole, false, true)
	f.Fuzz(func(t *testing.T, first, last []byte, firstHead, lastHead bool) {
		s := newMemStore()
		for i, body := range [][]byte{first, last} {
			data := bytes.Clone(body)
			if i == 0 && firstHead || i == 1 && lastHead {
				h := segmentHeader{index: uint64(7 + i), firstSeq: uint64(42 + 3*i), salt: h.salt, created: h.created}
				head, _ := h.encode()
				data = append(head, data...)
			}
			file, err := s.Create(segmentName("", uint64(7+i)))
			if err != nil {
				t.Fatal(err)
			}
			if len(data) > 0 {
				if err := writeFull(file, data, 0); err != nil {
					t.Fatal(err)
				}
			}
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
			t.Fatalf("%d records (%v), then %d (%v) and not one more", len(before), damage, len(now), err)
		}
	})
}

// readable returns the records up to the first damage, or with salvage all.
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

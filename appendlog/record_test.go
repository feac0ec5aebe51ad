// SPDX-License-Identifier: MIT

package appendlog

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

// goldenSegment is a segment of version 1, byte by byte: the header, a record, and a batch
// of an empty record and one of eight bytes.
const goldenSegment = `
5253415050454e44 01000000 40000000 0700000000000000 2a00000000000000
efcdab8967452301 0094357700000000 000000000000000000000000 2357ed89

05000000 2a00000000000000 00000000 6a3acb95 665ec7d2 6170706c65 000000

00000080 2b00000000000000 00000000 00000000 22e3909e
08000000 2c00000000000000 18000000 9a808760 902b8417 3132333435363738
`

// appendRecord encodes a record for the offset off. h holds the payload's checksum.
func appendRecord(buf []byte, h recordHeader, p []byte, seed uint32, off int64) []byte {
	at := len(buf)
	buf = append(buf, make([]byte, recordHeaderSize)...)
	putBegin(buf[at:], h.length, h.more, h.payload)
	completeHeader(buf[at:], h.seq, h.behind, seed, off)
	return appendPadded(buf, p)
}

func goldenParts() (segmentHeader, [][]byte) {
	h := segmentHeader{version: 1, index: 7, firstSeq: 42, salt: 0x0123456789abcdef, created: 2_000_000_000}
	return h, [][]byte{[]byte("apple"), {}, []byte("12345678")}
}

// buildSegment encodes a segment in which each record is durable before the next is
// written, except records that more marks as parts of a batch.
func buildSegment(h segmentHeader, records [][]byte, more ...bool) []byte {
	b, seed := h.encode()
	synced := len(b)
	for i, p := range records {
		m := i < len(more) && more[i]
		b = appendRecord(b, recordHeader{length: len(p), more: m, seq: h.firstSeq + uint64(i),
			behind: uint32(len(b) - synced), payload: checksum(p)}, p, seed, int64(len(b)))
		if !m {
			synced = len(b)
		}
	}
	return b
}

func TestFormatGolden(t *testing.T) {
	h, records := goldenParts()
	got := buildSegment(h, records, false, true, false)
	want, err := hex.DecodeString(strings.Join(strings.Fields(goldenSegment), ""))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("encoded\n%s\nwant\n%s", hex.Dump(got), hex.Dump(want))
	}
	back, seed, reason := decodeSegmentHeader(want)
	if back != h || reason != "" {
		t.Errorf("decoded header %+v, %q, want %+v", back, reason, h)
	}
	s := scanner{f: bytes.NewReader(want), size: int64(len(want)), seed: seed}
	off := int64(segmentHeaderSize)
	for i, p := range records {
		e, reason, err := s.record(off)
		if reason != "" || err != nil || !bytes.Equal(e.data, p) || e.seq != 42+uint64(i) || e.more != (i == 1) {
			t.Fatalf("record %d decoded as %+v, %q, %v", i, e, reason, err)
		}
		off = e.next
	}
	if off != s.size {
		t.Errorf("the records end at %d, want %d", off, s.size)
	}
}

// The additions of version 2: the header with the ID of the log, a seal, and a slot of an
// end mark.
const (
	goldenHeader2 = `
5253415050454e44 02000000 40000000 0700000000000000 2a00000000000000
efcdab8967452301 0094357700000000 2211000000000000 00000000 c26ee3fa`
	goldenSeal = `
525341505345414c 01000000 58000000 2211000000000000 0700000000000000
2a00000000000000 0900000000000000 3200000000000000 c26ee3fa f3ec867f`
	goldenMark = `
525341504d41524b 01000000 01000000 0300000000000000 2211000000000000
0500000000000000 0700000000000000 5800000000000000 2c00000000000000 000000000000000000000000 c769ec7f`
)

// TestFormatTwoGolden encodes the additions of version 2.
func TestFormatTwoGolden(t *testing.T) {
	h, _ := goldenParts()
	h.version, h.log = 2, 0x1122
	head, seed := h.encode()
	if back, _, reason := decodeSegmentHeader(head); back != h || reason != "" {
		t.Errorf("decoded header %+v, %q, want %+v", back, reason, h)
	}
	s := seal{flags: sealAccepted, offset: 0x58, log: 0x1122, index: 7, firstSeq: 42, nextIndex: 9, nextSeq: 50, seed: seed}
	if back, ok := decodeSeal(s.encode(), 0x58); back != s || !ok {
		t.Errorf("decoded seal %+v, %v, want %+v", back, ok, s)
	}
	if _, ok := decodeSeal(s.encode(), 0x60); ok {
		t.Error("a seal is also valid at another position")
	}
	m := endMark{gen: 3, log: 0x1122, clean: true, first: 5, end: Position{7, 0x58, 44}}
	mark := make([]byte, markSize)
	m.encode(mark)
	if back, ok := decodeMark(mark); back != m || !ok {
		t.Errorf("decoded mark %+v, %v, want %+v", back, ok, m)
	}
	for what, c := range map[string]struct {
		got  []byte
		want string
	}{"header": {head, goldenHeader2}, "seal": {s.encode(), goldenSeal}, "mark": {mark, goldenMark}} {
		want, err := hex.DecodeString(strings.Join(strings.Fields(c.want), ""))
		if err != nil || !bytes.Equal(c.got, want) {
			t.Errorf("%s: encoded\n%s\nwant\n%s, %v", what, hex.Dump(c.got), hex.Dump(want), err)
		}
	}
	for bit := range len(mark) * 8 {
		b := bytes.Clone(mark)
		b[bit/8] ^= 1 << (bit % 8)
		if _, ok := decodeMark(b); ok {
			t.Errorf("a mark with bit %d flipped is accepted", bit)
		}
	}
	for bit := range sealSize * 8 {
		b := s.encode()
		b[bit/8] ^= 1 << (bit % 8)
		if _, ok := decodeSeal(b, 0x58); ok {
			t.Errorf("a seal with bit %d flipped is accepted", bit)
		}
	}
}

func TestSegmentHeaderRefusals(t *testing.T) {
	h, _ := goldenParts()
	for bit := range segmentHeaderSize * 8 {
		b, _ := h.encode()
		b[bit/8] ^= 1 << (bit % 8)
		if _, _, reason := decodeSegmentHeader(b); reason == "" {
			t.Errorf("a header with bit %d flipped is accepted", bit)
		}
	}
	b, _ := h.encode()
	if _, _, reason := decodeSegmentHeader(b[:segmentHeaderSize-1]); reason == "" {
		t.Error("a short header is accepted")
	}
	b[8] = segmentVersion + 1
	seed := checksum(b[:60])
	b[60], b[61], b[62], b[63] = byte(seed), byte(seed>>8), byte(seed>>16), byte(seed>>24)
	if _, _, reason := decodeSegmentHeader(b); !strings.Contains(reason, "version") {
		t.Errorf("a header of a later version: %q", reason)
	}
}

// TestRecordIsBoundToItsPlace copies a valid record to another position and to another
// segment.
func TestRecordIsBoundToItsPlace(t *testing.T) {
	h, records := goldenParts()
	seg := buildSegment(h, records)
	_, seed, _ := decodeSegmentHeader(seg)
	first := seg[segmentHeaderSize : segmentHeaderSize+recordHeaderSize]
	if _, ok := parseRecordHeader(first, seed, segmentHeaderSize); !ok {
		t.Fatal("the record is not valid at its position")
	}
	for off := int64(segmentHeaderSize) + recordAlign; off < 1<<20; off += recordAlign {
		if _, ok := parseRecordHeader(first, seed, off); ok {
			t.Fatalf("the record is also valid at %d", off)
		}
	}
	h.salt++
	_, other := h.encode()
	if _, ok := parseRecordHeader(first, other, segmentHeaderSize); ok {
		t.Error("the record is also valid in another segment")
	}
	if _, ok := parseRecordHeader(make([]byte, recordHeaderSize), 0, 0); ok {
		t.Error("zeros are a valid record")
	}
}

// scanAll returns the payloads of the valid records of a segment.
func scanAll(seg []byte) (records [][]byte, t tail, err error) {
	h, seed, reason := decodeSegmentHeader(seg)
	if reason != "" {
		return nil, t, errors.New(reason)
	}
	s := scanner{f: bytes.NewReader(seg), size: int64(len(seg)), seed: seed}
	if t, err = s.scanTail(h.firstSeq); err != nil {
		return nil, t, err
	}
	for off := int64(segmentHeaderSize); off < t.end; {
		e, reason, err := s.record(off)
		if reason != "" || err != nil {
			return records, t, errors.New("the scan reported a record: " + reason)
		}
		records = append(records, bytes.Clone(e.data))
		off = e.next
	}
	return records, t, nil
}

// FuzzSegmentScan passes any bytes to the scanner: it must end, stay inside the file, and
// accept only records that encode to exactly these bytes.
// Promise: appendlog/damaged-log-error
func FuzzSegmentScan(f *testing.F) {
	h, records := goldenParts()
	seg := buildSegment(h, records, false, true)
	f.Add(seg[segmentHeaderSize:])
	f.Add(seg[segmentHeaderSize : len(seg)-3])
	f.Add(make([]byte, 100))
	f.Fuzz(func(t *testing.T, body []byte) {
		head, seed := h.encode()
		data := append(head, body...)
		records, tl, err := scanAll(data)
		if err != nil {
			t.Fatal(err)
		}
		s := scanner{f: bytes.NewReader(data), size: int64(len(data)), seed: seed}
		off := int64(segmentHeaderSize)
		for i, p := range records {
			e, _, err := s.record(off)
			if err != nil {
				t.Fatal(err)
			}
			again := appendRecord(nil, e.recordHeader, p, seed, off)
			if !bytes.Equal(again, data[off:e.next]) {
				t.Fatalf("record %d was accepted but encodes differently", i)
			}
			off = e.next
		}
		if tl.end < segmentHeaderSize || tl.end > int64(len(data)) || tl.end+tl.dropped > int64(len(data)) {
			t.Fatalf("the end is outside of the segment: %+v of %d", tl, len(data))
		}
	})
}

// FuzzSegmentDamage damages a valid segment: the records that are still read are a prefix
// of the written ones.
// Promise: appendlog/damaged-log-error
func FuzzSegmentDamage(f *testing.F) {
	f.Add(uint64(1), uint16(70), byte(1), uint16(3))
	f.Add(uint64(2), uint16(300), byte(0xff), uint16(400))
	f.Fuzz(func(t *testing.T, seed uint64, at uint16, xor byte, cut uint16) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var records [][]byte
		var more []bool
		for range 1 + rng.IntN(12) {
			p := make([]byte, rng.IntN(60))
			for i := range p {
				p[i] = byte(rng.Uint32())
			}
			records, more = append(records, p), append(more, rng.IntN(3) == 0)
		}
		more[len(more)-1] = false
		h, _ := goldenParts()
		seg := buildSegment(h, records, more...)
		if i := segmentHeaderSize + int(at); i < len(seg) {
			seg[i] ^= xor
		}
		seg = seg[:max(segmentHeaderSize, len(seg)-int(cut))]
		got, tl, err := scanAll(seg)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) > len(records) {
			t.Fatalf("%d records became %d", len(records), len(got))
		}
		for i := range got {
			if !bytes.Equal(got[i], records[i]) {
				t.Fatalf("record %d changed", i)
			}
		}
		if n := len(got); n > 0 && more[n-1] && !tl.damaged {
			t.Fatal("a part of a batch was read")
		}
	})
}

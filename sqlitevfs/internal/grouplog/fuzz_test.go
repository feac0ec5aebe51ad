// SPDX-License-Identifier: MIT

package grouplog

import (
	"bytes"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// encodeBatch encodes a batch as a leader does.
func encodeBatch(h batchHeader, records ...record) []byte {
	p := make([]byte, batchHeaderSize+listSize(len(h.prev)))
	for i, o := range h.prev {
		le.PutUint32(p[batchHeaderSize+4*i:], o)
	}
	h.list = len(h.prev)
	h.sums = crc32.Checksum(p[batchHeaderSize:], castagnoli)
	for _, r := range records {
		q := make([]byte, recordSize(r.path, len(r.frames)))
		r.encodeHeader(q, len(r.frames))
		end := recordHeaderSize + len(r.path) + copy(q[recordHeaderSize+len(r.path):], r.frames)
		sum := crc32.Checksum(q[4:end], castagnoli)
		le.PutUint32(q, sum)
		h.sums = addSum(h.sums, sum)
		p = append(p, q...)
	}
	h.length, h.records = len(p)-batchHeaderSize, len(records)
	h.encode(p)
	return append(p, make([]byte, h.size()-int64(len(p)))...)
}

func sample() (batchHeader, []record) {
	h := batchHeader{id: 7, generation: 3, seq: 9, live: 4, off: firstBatch}
	h.prev = []uint32{1, 2, 3}
	r := record{path: "a-wal", synced: 4, wal: 2, db: 1, off: 32, frames: []byte("frames of some kind"),
		header: Header{PageSize: 4096, Checkpoint: 5, Salt: [8]byte{1, 2, 3}}}
	s := r
	s.path, s.frames, s.off = "/elsewhere/b-wal", bytes.Repeat([]byte{0xab}, 5000), 4152
	return h, []record{r, s}
}

func TestBatchRoundTrip(t *testing.T) {
	h, records := sample()
	p := encodeBatch(h, records...)
	if len(p)%block != 0 {
		t.Errorf("%d bytes", len(p))
	}
	var got []record
	back, ok := decodeBatch(p, h.off, func(r record) { got = append(got, r) })
	if !ok || back.seq != h.seq || back.live != h.live || back.generation != h.generation || back.id != h.id || !slices.Equal(back.prev, h.prev) {
		t.Fatalf("%+v %v", back, ok)
	}
	for i, r := range got {
		want := records[i]
		if r.path != want.path || r.wal != want.wal || r.db != want.db || r.synced != want.synced || r.off != want.off || !r.header.same(want.header) || !bytes.Equal(r.frames, want.frames) {
			t.Errorf("record %d: %+v", i, r)
		}
	}
	if _, ok := decodeBatch(p, h.off+block, nil); ok {
		t.Error("a batch is valid at another position")
	}
	for bit := 0; bit < 8*(batchHeaderSize+back.length); bit += ringtest.Rounds(1, 5) {
		q := bytes.Clone(p)
		q[bit/8] ^= 1 << (bit % 8)
		if _, ok := decodeBatch(q, h.off, nil); ok {
			t.Fatalf("a batch with bit %d flipped is valid", bit)
		}
	}
}

// FuzzDecode checks that decoding arbitrary bytes does not panic, and that decoded parts lie within
// the input.
// Promise: sqlitevfs/corrupt-truncated-crafted
func FuzzDecode(f *testing.F) {
	h, records := sample()
	f.Add(encodeBatch(h, records...))
	f.Add(encodeBatch(h, records[0]))
	head := make([]byte, block)
	fileHeader{id: 1, generation: 2, segment: minSegment}.encode(head)
	f.Add(head)
	f.Fuzz(func(t *testing.T, p []byte) {
		if h, ok := decodeFileHeader(p); ok && !validSegment(h.segment) {
			t.Error("segments of", h.segment)
		}
		p = bytes.Clone(p) // the fuzzer may change it
		// The checksums would stop the fuzzer: correct them.
		if len(p) >= batchHeaderSize {
			le.PutUint32(p[4:], crc32.Checksum(p[8:batchHeaderSize], castagnoli))
			if n := recordHeaderSize + batchHeaderSize; len(p) >= n {
				end := min(int64(len(p)), batchHeaderSize+recordHeaderSize+int64(le.Uint32(p[batchHeaderSize+4:]))+int64(le.Uint16(p[batchHeaderSize+8:])))
				le.PutUint32(p[batchHeaderSize:], crc32.Checksum(p[batchHeaderSize+4:end], castagnoli))
			}
		}
		n := 0
		h, ok := decodeBatch(p, firstBatch, func(r record) { n += len(r.frames) + len(r.path) })
		if ok && (n > h.length || h.length > len(p)) {
			t.Errorf("decoded %d bytes from a batch of %d in an input of %d", n, h.length, len(p))
		}
		if h, err := ParseHeader(p); err == nil {
			for q := p[walHeaderSize:]; int64(len(q)) >= h.frame(); q = q[h.frame():] {
				h.chain(h.sum, q[:h.frame()])
			}
		}
	})
}

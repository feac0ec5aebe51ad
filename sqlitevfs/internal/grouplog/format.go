// SPDX-License-Identifier: MIT

package grouplog

import (
	"cmp"
	"hash/crc32"
	"math"

	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
)

const (
	block      = disk.Block
	version    = 2         // version 1 can be read too
	firstBatch = 2 * block // after the two copies of the file header

	fileHeaderSize   = 64
	batchHeaderSize  = 64
	recordHeaderSize = 64
	recordAlign      = 8
	maxPath          = math.MaxUint16
)

var (
	fileMagic  = [8]byte([]byte("RSGRPLOG"))
	batchMagic = [4]byte([]byte("RSGB"))
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }

// fileHeader has two copies in the file, which are written alternately. The newer one is valid.
type fileHeader struct {
	id         uint64 // random; identifies the log
	revision   uint64 // incremented with each write of the header, from 1
	generation uint64 // incremented when the log is emptied
	live       uint64 // batches before this one may have been overwritten
	segment    int64  // bytes
	first      int64  // bytes of the first segments; 0: the same as the others
	clean      bool   // closed: there are no batches of this generation
}

// small returns the size of the first segments.
func (h fileHeader) small() int64 { return cmp.Or(h.first, h.segment) }

// slot returns the offset of this revision.
func (h fileHeader) slot() int64 { return int64(h.revision%2) * block }

func (h fileHeader) encode(p []byte) {
	clear(p[:fileHeaderSize])
	copy(p, fileMagic[:])
	le.PutUint32(p[8:], version)
	le.PutUint32(p[12:], block)
	le.PutUint64(p[16:], h.id)
	le.PutUint64(p[24:], h.generation)
	le.PutUint64(p[32:], uint64(h.segment))
	le.PutUint64(p[40:], h.revision)
	le.PutUint64(p[48:], h.live)
	if h.clean {
		p[56] = 1
	}
	le.PutUint16(p[58:], uint16(h.first/block))
	le.PutUint32(p[60:], crc32.Checksum(p[:60], castagnoli))
}

func decodeFileHeader(p []byte) (h fileHeader, ok bool) {
	if len(p) < fileHeaderSize || [8]byte(p) != fileMagic ||
		le.Uint32(p[8:]) != version && le.Uint32(p[8:]) != 1 || le.Uint32(p[12:]) != block ||
		le.Uint32(p[60:]) != crc32.Checksum(p[:60], castagnoli) {
		return h, false
	}
	h = fileHeader{id: le.Uint64(p[16:]), generation: le.Uint64(p[24:]), segment: int64(le.Uint64(p[32:])),
		revision: le.Uint64(p[40:]), live: le.Uint64(p[48:]), clean: p[56] != 0,
		first: int64(le.Uint16(p[58:])) * block}
	return h, validSegment(h.segment) && validSegment(h.small()) && h.first <= h.segment
}

// batchHeader precedes the records of one write of the log.
type batchHeader struct {
	id, generation uint64
	seq            uint64 // number of the batch in its generation, from 1
	live           uint64 // batches before this one are no longer needed
	off            int64  // in the file: a batch at another offset is invalid
	length         int    // of the records, in bytes
	records        int
	sums           uint32 // CRC of the owners, and of the CRCs of the records
	// prev identifies the WALs with records in the previous batch, see [owner]. If that batch is
	// damaged, it shows whose commits are lost. Nil means unknown.
	prev []uint32
	list int // length of the list, in bytes
}

// listSize returns the size of the list of owners after the header, in bytes.
func listSize(owners int) int { return int(roundUp(4*int64(owners), recordAlign)) }

func (h batchHeader) encode(p []byte) {
	clear(p[:batchHeaderSize])
	copy(p, batchMagic[:])
	le.PutUint64(p[8:], h.id)
	le.PutUint64(p[16:], h.generation)
	le.PutUint64(p[24:], h.seq)
	le.PutUint64(p[32:], h.live)
	le.PutUint64(p[40:], uint64(h.off))
	le.PutUint32(p[48:], uint32(h.length))
	le.PutUint32(p[52:], uint32(h.records))
	le.PutUint32(p[56:], h.sums)
	le.PutUint32(p[60:], uint32(h.list))
	le.PutUint32(p[4:], crc32.Checksum(p[8:batchHeaderSize], castagnoli))
}

func decodeBatchHeader(p []byte) (h batchHeader, ok bool) {
	if len(p) < batchHeaderSize || [4]byte(p) != batchMagic ||
		le.Uint32(p[4:]) != crc32.Checksum(p[8:batchHeaderSize], castagnoli) {
		return h, false
	}
	h = batchHeader{
		id: le.Uint64(p[8:]), generation: le.Uint64(p[16:]), seq: le.Uint64(p[24:]),
		live: le.Uint64(p[32:]), off: int64(le.Uint64(p[40:])),
		length: int(le.Uint32(p[48:])), records: int(le.Uint32(p[52:])), sums: le.Uint32(p[56:]), list: int(le.Uint32(p[60:])),
	}
	return h, h.seq != 0 && h.size() <= maxBatch && h.list <= h.length/4
}

// size returns the size of the batch in the file, in bytes.
func (h batchHeader) size() int64 { return roundUp(batchHeaderSize+int64(h.length), block) }

// record is one commit: frames of one WAL.
type record struct {
	path string // of the WAL, see relative
	// wal and db are the marks of the WAL and its database; 0 if they are not known.
	wal, db uint64
	header  Header // page size, checkpoint and salt only
	off     int64  // of the first frame, in the WAL
	synced  uint64 // batches up to this one are durable in the WAL itself
	frames  []byte // empty: only synced is used
	seq     uint64 // of its batch
}

// marked is the flag of a record with marks. Earlier versions have the WAL's device and inode in their place.
const marked = 1

// end returns the end of the commit in the WAL.
func (r record) end() int64 { return r.off + int64(len(r.frames)) }

func recordSize(path string, frames int) int64 {
	return roundUp(recordHeaderSize+int64(len(path))+int64(frames), recordAlign)
}

// encodeHeader fills in everything but the CRC, and returns the CRC of header and path. The caller
// continues the CRC over the frames and stores it in the first four bytes.
func (r *record) encodeHeader(p []byte, frames int) uint32 {
	clear(p[:recordHeaderSize])
	le.PutUint32(p[4:], uint32(frames))
	le.PutUint16(p[8:], uint16(len(r.path)))
	le.PutUint32(p[12:], r.header.Checkpoint)
	copy(p[16:24], r.header.Salt[:])
	le.PutUint32(p[24:], uint32(r.header.PageSize))
	le.PutUint64(p[32:], uint64(r.off))
	if r.db != 0 {
		le.PutUint16(p[10:], marked)
		le.PutUint64(p[40:], r.db)
		le.PutUint64(p[48:], r.wal)
	}
	le.PutUint64(p[56:], r.synced)
	copy(p[recordHeaderSize:], r.path)
	return crc32.Checksum(p[4:recordHeaderSize+len(r.path)], castagnoli)
}

// decodeRecord decodes the record at the start of p and returns the bytes after it, or nil if their
// start is unknown. The frames share memory with p.
func decodeRecord(p []byte) (r record, sum uint32, rest []byte, ok bool) {
	if len(p) < recordHeaderSize {
		return r, 0, nil, false
	}
	frames, path := int64(le.Uint32(p[4:])), int64(le.Uint16(p[8:]))
	end := recordHeaderSize + path + frames
	size := roundUp(end, recordAlign)
	if size > int64(len(p)) {
		return r, 0, nil, false
	}
	sum = le.Uint32(p)
	if sum != crc32.Checksum(p[4:end], castagnoli) || !zeros(p[end:size]) {
		return r, 0, p[size:], false
	}
	r = record{
		path:   string(p[recordHeaderSize : recordHeaderSize+path]),
		header: Header{PageSize: int(le.Uint32(p[24:])), Checkpoint: le.Uint32(p[12:]), Salt: [8]byte(p[16:24])},
		off:    int64(le.Uint64(p[32:])),
		synced: le.Uint64(p[56:]),
		frames: p[recordHeaderSize+path : end],
	}
	if le.Uint16(p[10:])&marked != 0 {
		r.db, r.wal = le.Uint64(p[40:]), le.Uint64(p[48:])
	}
	return r, sum, p[size:], true
}

func zeros(p []byte) bool {
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}

// decodeBatch decodes the batch at the start of p, which is at off in the file, and visits its
// valid records. ok is false if the header or a record is not valid. Records after an invalid one
// are visited if they can be found.
func decodeBatch(p []byte, off int64, visit func(record)) (h batchHeader, ok bool) {
	h, ok = decodeBatchHeader(p)
	if !ok || h.off != off || batchHeaderSize+int64(h.length) > int64(len(p)) || listSize(h.list) > h.length {
		return h, false
	}
	rest := p[batchHeaderSize : batchHeaderSize+h.length]
	list := rest[:listSize(h.list)]
	rest = rest[len(list):]
	sums := crc32.Checksum(list, castagnoli)
	if h.list > 0 {
		h.prev = make([]uint32, h.list)
		for i := range h.prev {
			h.prev[i] = le.Uint32(list[4*i:])
		}
	}
	whole := true
	for range h.records {
		r, sum, next, ok := decodeRecord(rest)
		if whole = whole && ok; next == nil {
			return h, false
		}
		rest = next
		sums = addSum(sums, sum)
		if ok && visit != nil {
			visit(r)
		}
	}
	return h, whole && len(rest) == 0 && sums == h.sums
}

// addSum continues the CRC over the CRCs of a batch's records.
func addSum(sums, sum uint32) uint32 {
	var p [4]byte
	le.PutUint32(p[:], sum)
	return crc32.Update(sums, castagnoli, p[:])
}

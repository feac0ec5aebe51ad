// SPDX-License-Identifier: MIT

package appendlog

import (
	"encoding/binary"
	"hash/crc32"
	"io"
)

// The on-disk format, version 2; docs/appendlog.md describes it in words. Version 1
// had no log ID, no seals and no end mark.
const (
	segmentMagic      = "RSAPPEND"
	segmentVersion    = 2
	segmentHeaderSize = 64
	recordHeaderSize  = 24
	recordAlign       = 8
	// lengthMore is set in a record's length when the batch continues with the next
	// record.
	lengthMore = 1 << 31
	// lengthWithdrawn is set in the length of a withdrawn record, in memory only. No length has
	// this bit: it is that of the largest segment.
	lengthWithdrawn = maxSegmentSize
	// maxSeq and maxIndex are higher than the numbers of every record and segment, and
	// leave room for all that follow.
	maxSeq   = 1 << 62
	maxIndex = 1 << 62
	// maxSegmentSize keeps offsets, and the distances in record headers, well
	// inside 32 bits, in which the checksum binds a record to its place.
	maxSegmentSize = 1 << 30
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }

// segmentHeader is at the start of every segment. Its checksum is the seed of the
// checksums of the records. So a record of another segment, or an old record in reused
// blocks, is not valid here.
type segmentHeader struct {
	version  uint32
	index    uint64 // 1, 2, 3…
	firstSeq uint64 // number of the first record in it
	salt     uint64 // random
	created  int64  // nanoseconds since 1970
	log      uint64 // ID of the log; 0 in version 1
}

// encode returns the header's bytes and the seed.
func (h segmentHeader) encode() ([]byte, uint32) {
	b := make([]byte, segmentHeaderSize)
	copy(b, segmentMagic)
	binary.LittleEndian.PutUint32(b[8:], h.version)
	binary.LittleEndian.PutUint32(b[12:], segmentHeaderSize)
	binary.LittleEndian.PutUint64(b[16:], h.index)
	binary.LittleEndian.PutUint64(b[24:], h.firstSeq)
	binary.LittleEndian.PutUint64(b[32:], h.salt)
	binary.LittleEndian.PutUint64(b[40:], uint64(h.created))
	binary.LittleEndian.PutUint64(b[48:], h.log)
	seed := checksum(b[:60])
	binary.LittleEndian.PutUint32(b[60:], seed)
	return b, seed
}

// decodeSegmentHeader decodes the header of a segment and returns it with the seed of the
// records. reason is not empty if there is no header of a known version.
func decodeSegmentHeader(b []byte) (h segmentHeader, seed uint32, reason string) {
	switch {
	case len(b) < segmentHeaderSize:
		return h, 0, "the segment is shorter than its header"
	case string(b[:8]) != segmentMagic:
		return h, 0, "not a segment: wrong magic"
	case checksum(b[:60]) != binary.LittleEndian.Uint32(b[60:]):
		return h, 0, "checksum of the segment header"
	case binary.LittleEndian.Uint32(b[8:])-1 >= segmentVersion,
		binary.LittleEndian.Uint32(b[12:]) != segmentHeaderSize:
		return h, 0, "a format version that this program does not know"
	case binary.LittleEndian.Uint64(b[24:]) > maxSeq:
		return h, 0, "the segment begins with a number that no record has"
	}
	h.version = binary.LittleEndian.Uint32(b[8:])
	h.index = binary.LittleEndian.Uint64(b[16:])
	h.firstSeq = binary.LittleEndian.Uint64(b[24:])
	h.salt = binary.LittleEndian.Uint64(b[32:])
	h.created = int64(binary.LittleEndian.Uint64(b[40:]))
	if h.version > 1 {
		h.log = binary.LittleEndian.Uint64(b[48:])
	}
	return h, binary.LittleEndian.Uint32(b[60:]), ""
}

const (
	sealMagic = "RSAPSEAL"
	sealSize  = 64
	// sealAccepted is set if durable records of the segment, or behind it, are missing and
	// Options.AcceptLoss accepted that.
	sealAccepted = 1
	// sealListed is set if a list of what was accepted precedes the seal. Without it, as
	// in logs of earlier versions, all damage of the segment counts as accepted.
	sealListed = 2

	lossSize  = 24 // of an entry of the list
	lossesEnd = 8  // size of its trailer: the number of entries, and a checksum
)

// seal is the last 64 bytes of a complete segment. It is written after the next segment
// was made durable, so a seal without a next segment proves a loss.
type seal struct {
	flags     uint32
	offset    uint32 // of the seal in its file
	log       uint64
	index     uint64
	firstSeq  uint64
	nextIndex uint64 // of the next segment
	nextSeq   uint64 // of the first record in it
	seed      uint32 // of this segment's records
}

func (s seal) encode() []byte {
	b := make([]byte, sealSize)
	copy(b, sealMagic)
	binary.LittleEndian.PutUint32(b[8:], s.flags)
	binary.LittleEndian.PutUint32(b[12:], s.offset)
	binary.LittleEndian.PutUint64(b[16:], s.log)
	binary.LittleEndian.PutUint64(b[24:], s.index)
	binary.LittleEndian.PutUint64(b[32:], s.firstSeq)
	binary.LittleEndian.PutUint64(b[40:], s.nextIndex)
	binary.LittleEndian.PutUint64(b[48:], s.nextSeq)
	binary.LittleEndian.PutUint32(b[56:], s.seed)
	binary.LittleEndian.PutUint32(b[60:], checksum(b[:60]))
	return b
}

// decodeSeal decodes the seal at an offset. It returns false if there is none.
func decodeSeal(b []byte, off int64) (s seal, ok bool) {
	if len(b) < sealSize || string(b[:8]) != sealMagic || checksum(b[:60]) != binary.LittleEndian.Uint32(b[60:]) {
		return s, false
	}
	s.flags = binary.LittleEndian.Uint32(b[8:])
	s.offset = binary.LittleEndian.Uint32(b[12:])
	s.log = binary.LittleEndian.Uint64(b[16:])
	s.index = binary.LittleEndian.Uint64(b[24:])
	s.firstSeq = binary.LittleEndian.Uint64(b[32:])
	s.nextIndex = binary.LittleEndian.Uint64(b[40:])
	s.nextSeq = binary.LittleEndian.Uint64(b[48:])
	s.seed = binary.LittleEndian.Uint32(b[56:])
	return s, int64(s.offset) == off
}

// loss is a place in a segment where records are missing, and from which reading
// continues.
type loss struct {
	off, next int64  // no record begins between them
	from, to  uint64 // the numbers of the missing records; to is 0 if it is unknown
}

// encodeLosses returns the list that precedes the seal of a segment with accepted losses.
func encodeLosses(losses []loss, seed uint32) []byte {
	b := make([]byte, 0, lossesSize(len(losses)))
	for _, d := range losses {
		b = binary.LittleEndian.AppendUint32(b, uint32(d.off))
		b = binary.LittleEndian.AppendUint32(b, uint32(d.next))
		b = binary.LittleEndian.AppendUint64(b, d.from)
		b = binary.LittleEndian.AppendUint64(b, d.to)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(losses)))
	return binary.LittleEndian.AppendUint32(b, crc32.Update(seed, castagnoli, b))
}

// lostIn returns the number of lost records, as far as it is known.
func lostIn(losses []loss) (n uint64) {
	for _, d := range losses {
		if d.from != 0 && d.to > d.from {
			n += d.to - d.from
		}
	}
	return n
}

func lossesSize(n int) int64 { return int64(n)*lossSize + lossesEnd }

// decodeLosses decodes the list that ends at an offset of a segment. It returns false if
// the list is damaged.
func decodeLosses(f io.ReaderAt, end int64, seed uint32) (losses []loss, ok bool, err error) {
	b := make([]byte, lossesEnd)
	if n, err := f.ReadAt(b, end-lossesEnd); n < len(b) {
		return nil, false, err
	}
	size := lossesSize(int(binary.LittleEndian.Uint32(b)))
	if end-size < segmentHeaderSize {
		return nil, false, nil
	}
	b = make([]byte, size)
	if n, err := f.ReadAt(b, end-size); n < len(b) {
		return nil, false, err
	}
	if crc32.Update(seed, castagnoli, b[:size-4]) != binary.LittleEndian.Uint32(b[size-4:]) {
		return nil, false, nil
	}
	for b := b[:size-lossesEnd]; len(b) > 0; b = b[lossSize:] {
		losses = append(losses, loss{
			off: int64(binary.LittleEndian.Uint32(b)), next: int64(binary.LittleEndian.Uint32(b[4:])),
			from: binary.LittleEndian.Uint64(b[8:]), to: binary.LittleEndian.Uint64(b[16:]),
		})
	}
	return losses, true, nil
}

// recordHeader precedes every payload.
type recordHeader struct {
	length int    // of the payload
	more   bool   // the batch continues with the next record
	seq    uint64 // 1, 2, 3… over the life of the log
	// behind is the distance in bytes back to the end of the data that was durable before
	// this record was written. Damage before that offset hit acknowledged records. Damage
	// after it may be a torn write.
	behind  uint32
	payload uint32 // checksum of the payload
}

// recordSize returns the number of bytes that a record with a payload of n bytes takes.
func recordSize(n int) int64 {
	return recordHeaderSize + (int64(n)+recordAlign-1)&^(recordAlign-1)
}

// place is the seed of a record header's checksum. For a given length CRC is
// one to one in its seed, so a header at another offset never passes.
func place(seed uint32, off int64) uint32 { return seed ^ uint32(off) }

// putBegin writes a header that lacks what only the leader knows; see completeHeader.
func putBegin(b []byte, length int, more bool, payload uint32) {
	n := uint32(length)
	if more {
		n |= lengthMore
	}
	binary.LittleEndian.PutUint32(b, n)
	binary.LittleEndian.PutUint32(b[16:], payload)
}

// beginLength returns the length of the payload in a header of putBegin.
func beginLength(b []byte) int {
	return int(binary.LittleEndian.Uint32(b) &^ (lengthMore | lengthWithdrawn))
}

// markWithdrawn marks a header of putBegin, whose record was withdrawn.
func markWithdrawn(b []byte) {
	binary.LittleEndian.PutUint32(b, binary.LittleEndian.Uint32(b)|lengthWithdrawn)
}

// isWithdrawn reports whether markWithdrawn has marked a header.
func isWithdrawn(b []byte) bool { return binary.LittleEndian.Uint32(b)&lengthWithdrawn != 0 }

// headerPlace returns the number and the distance in a complete header.
func headerPlace(b []byte) (seq uint64, behind uint32) {
	return binary.LittleEndian.Uint64(b[4:]), binary.LittleEndian.Uint32(b[12:])
}

// completeHeader completes a header of putBegin.
func completeHeader(b []byte, seq uint64, behind, seed uint32, off int64) {
	binary.LittleEndian.PutUint64(b[4:], seq)
	binary.LittleEndian.PutUint32(b[12:], behind)
	binary.LittleEndian.PutUint32(b[20:], crc32.Update(place(seed, off), castagnoli, b[:20]))
}

// parseRecordHeader decodes the header at an offset. It returns false if there is none.
func parseRecordHeader(b []byte, seed uint32, off int64) (h recordHeader, ok bool) {
	// Numbers begin at 1, so zeros are rejected without a checksum.
	h.seq = binary.LittleEndian.Uint64(b[4:])
	if h.seq-1 >= maxSeq || crc32.Update(place(seed, off), castagnoli, b[:20]) != binary.LittleEndian.Uint32(b[20:]) {
		return h, false
	}
	length := binary.LittleEndian.Uint32(b)
	h.length = int(length &^ lengthMore)
	h.more = length&lengthMore != 0
	h.behind = binary.LittleEndian.Uint32(b[12:])
	h.payload = binary.LittleEndian.Uint32(b[16:])
	durable := off - int64(h.behind)
	return h, h.length <= maxSegmentSize && durable >= segmentHeaderSize
}

// durable returns the offset up to which the segment was durable before the
// record at off was written.
func (h *recordHeader) durable(off int64) int64 { return off - int64(h.behind) }

// appendPadded appends a payload and the zeros behind it.
func appendPadded(buf, p []byte) []byte {
	buf = append(buf, p...)
	return append(buf, make([]byte, -len(p)&(recordAlign-1))...)
}

// zero reports whether all bytes of b are zero.
func zero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// room returns how many bytes of records fit into a segment.
func (o *Options) room() int64 { return o.SegmentSize - segmentHeaderSize - sealSize }

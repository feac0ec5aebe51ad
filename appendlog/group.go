// SPDX-License-Identifier: MIT

package appendlog

import (
	"encoding/binary"
	"slices"
)

// maxGroup is the largest group in bytes. A larger write gains nothing and delays the
// appends in it. A single record or batch may be larger.
const maxGroup = 1 << 20

// maxInline is the largest payload that its caller copies into the buffer of the group. A
// larger one stays in the caller's memory until the leader copies it, so that calls that
// wait hold no large copies.
const maxInline = 4 << 10

// group is the records of calls that share one write and one sync, or the function of one call.
// The first call leads: it writes for all of them, or runs its function. The log's mutex guards
// a group until its leader takes it, and the group is the leader's until done is closed.
type group struct {
	// buf has the records in the order of the calls. The headers are those of
	// putBegin, and payloads above maxInline are missing.
	buf       []byte
	large     [][]byte // these payloads, which are the callers'
	size      int64    // of the records, in the segment
	records   uint64
	calls     int  // that were not withdrawn
	withdrawn bool // records of withdrawn calls are in buf, marked by lengthWithdrawn
	control   bool // the group has a function

	before, next *group        // in the queue
	taken        bool          // by the leader
	chosen       bool          // the leader may go on
	alone        bool          // the call that was to lead was withdrawn
	lead         chan struct{} // gets a token when it is chosen; nil if it never had to wait
	done         chan struct{} // closed when pos and err are set; nil while the group has one call

	pos     Position // of the first record
	durable int64    // what encode was told
	bytes   uint64   // of the payloads
	err     error
}

// span is the place of a call's records in its group, if no other call is withdrawn.
type span struct {
	at      int    // in group.buf
	off     int64  // in the segment, from the start of the group
	seq     uint64 // number of the first record, from that of the group
	records int
}

// add adds the records of a call, with the checksums of their payloads.
func (g *group) add(records [][]byte, sums []uint32, size int64) span {
	s := span{at: len(g.buf), off: g.size, seq: g.records, records: len(records)}
	for i, p := range records {
		at, n := len(g.buf), storedSize(len(p))
		g.buf = slices.Grow(g.buf, n)[:at+n]
		b := g.buf[at:]
		putBegin(b, len(p), i < len(records)-1, sums[i])
		if len(p) > maxInline {
			g.large = append(g.large, p)
		} else if len(p) > 0 {
			binary.LittleEndian.PutUint64(b[n-recordAlign:], 0)
			copy(b[recordHeaderSize:], p)
		}
	}
	g.size += size
	g.records += uint64(len(records))
	return s
}

// withdraw marks the records of a call.
func (g *group) withdraw(s span) {
	b := g.buf[s.at:]
	for range s.records {
		n := storedSize(beginLength(b))
		markWithdrawn(b)
		b = b[n:]
	}
	g.calls--
	g.withdrawn = true
}

// storedSize returns how many bytes a record takes in the buffer of a group.
func storedSize(n int) int {
	if n > maxInline {
		return recordHeaderSize
	}
	return int(recordSize(n))
}

// copies reports whether encode has to copy the records: some were withdrawn, or are not in g.buf.
func (g *group) copies() bool { return len(g.large) > 0 || g.withdrawn }

// encode completes the records for g.pos in a segment that is durable up to an offset. It returns
// them, behind the content of out if that is not nil, and their number. out may be nil unless g.copies.
func (g *group) encode(out []byte, seed uint32, durable int64) (b []byte, records uint64) {
	copies, large := out != nil, g.large
	g.durable = durable
	place := g.pos
	for in := g.buf; len(in) > 0; {
		n := beginLength(in)
		r := in[:storedSize(n)]
		in = in[len(r):]
		var payload []byte
		if n > maxInline {
			payload, large = large[0], large[1:]
		}
		if isWithdrawn(r) {
			continue
		}
		completeHeader(r, place.Seq, uint32(place.Offset-durable), seed, place.Offset)
		if copies {
			out = append(out, r...)
			out = appendPadded(out, payload)
		}
		g.bytes += uint64(n)
		place.Offset += recordSize(n)
		place.Seq++
	}
	if !copies {
		out = g.buf
	}
	return out, place.Seq - g.pos.Seq
}

// position returns the position of a call's first record when the group was served.
func (g *group) position(s span) Position {
	if g.err != nil {
		return Position{}
	}
	pos := g.pos
	if g.withdrawn { // encode has completed the headers in buf
		seq, behind := headerPlace(g.buf[s.at:])
		pos.Offset, pos.Seq = g.durable+int64(behind), seq
		return pos
	}
	pos.Offset += s.off
	pos.Seq += s.seq
	return pos
}

// reuse returns an empty group with the memory of g, which was served. If other calls
// than the leader's wait for g, its result stays. With withdrawn calls, position needs g.buf.
func (g *group) reuse() *group {
	free := g
	if g.done != nil {
		free = new(group)
	}
	clear(g.large)
	*free = group{buf: g.buf[:0], large: g.large[:0], lead: g.lead}
	return free
}

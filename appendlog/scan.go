// SPDX-License-Identifier: MIT

package appendlog

import "io"

// scanWindow is the number of bytes of a segment that are read at a time.
const scanWindow = 256 << 10

// scanner decodes the records of one segment. It reads through one window, so its results
// are valid until the next call.
type scanner struct {
	f    io.ReaderAt
	size int64
	seed uint32

	win []byte // the bytes of the file from at on
	at  int64
}

// entry is one record of a segment.
type entry struct {
	recordHeader
	off, next int64
	data      []byte
}

// Why a record is not valid.
const (
	badHeader  = "no record header with a valid checksum"
	badLength  = "the record runs past the end of the segment"
	badPayload = "checksum of the payload"
	badPadding = "padding that is not zero"
	badSeq     = "a record out of sequence"
	badBatch   = "a batch without its end"
	missing    = "the segment ends before the next one begins"
	endsEarly  = "the log ends before records that were durable"
	accepted   = "a loss that was accepted"
	noNext     = "segment %d is missing behind it"
	noSeal     = "the segment has no seal and the next one no valid header, so that nothing shows whether records are gone"
	noMark     = "the end mark is missing or damaged, so that nothing shows whether records are gone"
	halfMark   = "a half of the end mark is damaged, so that nothing shows whether the last records are gone"
)

// view returns n bytes of the file at off. Bytes that were cut off meanwhile read as
// zero; sealing a segment cuts off its zeros.
func (s *scanner) view(off int64, n int) ([]byte, error) {
	if i := off - s.at; i >= 0 && i+int64(n) <= int64(len(s.win)) {
		return s.win[i : i+int64(n)], nil
	}
	want := int(min(max(int64(n), scanWindow), s.size-off))
	if cap(s.win) < want {
		s.win = make([]byte, want)
	}
	s.win, s.at = s.win[:want], off
	m, err := s.f.ReadAt(s.win, off)
	if m < n && err != io.EOF {
		s.win = s.win[:0]
		return nil, err
	}
	if err == io.EOF {
		clear(s.win[m:])
	} else {
		s.win = s.win[:m]
	}
	return s.win[:n], nil
}

// forget drops the window, so that the file is read anew.
func (s *scanner) forget() { s.win = s.win[:0] }

// header decodes the record header at off; false when there is none.
func (s *scanner) header(off int64) (recordHeader, bool, error) {
	if off+recordHeaderSize > s.size {
		return recordHeader{}, false, nil
	}
	b, err := s.view(off, recordHeaderSize)
	if err != nil {
		return recordHeader{}, false, err
	}
	h, ok := parseRecordHeader(b, s.seed, off)
	return h, ok, nil
}

// record decodes the record at off. If there is no valid record, reason is not empty, and
// the entry's next is the offset at which to continue the search. If the header is valid,
// next lies after the record, so that payloads are not searched for records.
func (s *scanner) record(off int64) (e entry, reason string, err error) {
	e = entry{off: off, next: off + recordAlign}
	h, ok, err := s.header(off)
	if err != nil || !ok {
		return e, badHeader, err
	}
	e.recordHeader = h
	e.next = off + recordSize(h.length)
	if e.next > s.size {
		return e, badLength, nil
	}
	b, err := s.view(off, int(recordSize(h.length)))
	if err != nil {
		return e, badPayload, err
	}
	b = b[recordHeaderSize:]
	e.data = b[:h.length:h.length]
	switch {
	case checksum(e.data) != h.payload:
		return e, badPayload, nil
	case !zero(b[h.length:]):
		return e, badPadding, nil
	}
	return e, "", nil
}

// resume finds the first record at or after off whose number is at least seq. It returns
// false if there is none. Readers that skip damage use it.
func (s *scanner) resume(off int64, seq uint64) (entry, bool, error) {
	for off+recordHeaderSize <= s.size {
		e, reason, err := s.record(off)
		if err != nil || reason == "" && e.seq >= seq {
			return e, err == nil, err
		}
		off = e.next
	}
	return entry{}, false, nil
}

// reseed chooses between two seeds for a segment with a damaged header: the checksum in
// the header, and the checksum computed from the header.
func (s *scanner) reseed() error {
	if _, ok, err := s.resume(segmentHeaderSize, 1); ok || err != nil {
		return err
	}
	b, err := s.view(0, int(min(60, s.size)))
	if err == nil {
		s.seed = checksum(b)
	}
	return err
}

// highest returns the highest number of a record at or after off, 0 when there is
// none.
func (s *scanner) highest(off int64) (seq uint64, err error) {
	for off+recordHeaderSize <= s.size {
		e, reason, err := s.record(off)
		if err != nil {
			return seq, err
		}
		if reason != badHeader {
			seq = max(seq, e.seq)
		}
		off = e.next
	}
	return seq, nil
}

// acknowledgedAfter reports whether a record after the damage at off proves that off was
// durable before that record was written. Then the damage hit acknowledged records.
// Otherwise it may be the rest of an interrupted write, because the sectors of a write
// that was not synced may reach the disk in any order.
func (s *scanner) acknowledgedAfter(off, next int64, seq uint64) (bool, error) {
	for at := next; at+recordHeaderSize <= s.size; {
		h, ok, err := s.header(at)
		if err != nil {
			return false, err
		}
		if !ok {
			at += recordAlign
			continue
		}
		if h.seq > seq && h.durable(at) > off {
			return true, nil
		}
		at += recordSize(h.length)
	}
	return false, nil
}

// tail is the result of a scan of the last segment.
type tail struct {
	end     int64  // offset after the last whole record
	seq     uint64 // number of the next record
	records uint64 // whole records in the segment
	// durable is the offset up to which the segment was durable when the last record was
	// written.
	durable int64
	dropped int64  // bytes after end up to the last that is not zero
	reason  string // why they are not records
	damaged bool   // end is not the end: acknowledged records follow
}

// scanTail reads a segment from its first record to the end of its valid part and
// examines what follows.
func (s *scanner) scanTail(firstSeq uint64) (tail, error) {
	t := tail{end: segmentHeaderSize, seq: firstSeq, durable: segmentHeaderSize}
	off, seq, retried := t.end, t.seq, false
	for {
		e, reason, err := s.record(off)
		if err != nil {
			return t, err
		}
		if reason == "" && e.seq != seq {
			reason = badSeq
		}
		if reason == "" {
			off, seq, retried = e.next, seq+1, false
			if !e.more {
				t.durable = e.durable(e.off)
				t.records += seq - t.seq
				t.end, t.seq = off, seq
			}
			continue
		}
		// While a Log is open, a reader may have read this offset before it was written
		// and the following bytes afterwards. Read again.
		if t.damaged, err = s.acknowledgedAfter(off, e.next, seq); err != nil {
			return t, err
		}
		if t.damaged && !retried {
			retried = true
			s.forget()
			continue
		}
		return t, s.judge(&t, off, reason)
	}
}

// judge examines the bytes after the last whole record.
func (s *scanner) judge(t *tail, off int64, reason string) error {
	last, err := s.lastNonZero(t.end)
	if err != nil {
		return err
	}
	if t.damaged {
		t.end = off
	}
	if t.dropped = max(0, last+1-t.end); t.dropped > 0 {
		t.reason = reason
		if off > t.end && last < off {
			t.reason = badBatch
		}
	}
	return nil
}

// lastNonZero returns the offset of the last byte at or after off that is not
// zero, off-1 when there is none.
func (s *scanner) lastNonZero(off int64) (int64, error) {
	last := off - 1
	for off < s.size {
		b, err := s.view(off, int(min(4096, s.size-off)))
		if err != nil {
			return 0, err
		}
		for i := len(b) - 1; i >= 0; i-- {
			if b[i] != 0 {
				last = off + int64(i)
				break
			}
		}
		off += int64(len(b))
	}
	return last, nil
}

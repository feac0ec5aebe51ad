// SPDX-License-Identifier: MIT

package appendlog

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
)

// Record is a record of a log.
type Record struct {
	Position
	// Data is valid until the iteration continues; copy data that is needed longer.
	Data []byte
}

// Records reads the log from a position to the end of the records that were durable when
// the iteration began (with SyncNone: written). The zero Position is the beginning of the
// log. Any other position must be a record's or come from [Log.End]. After an error the
// iteration ends. The error is fs.ErrNotExist if the record at the position was trimmed,
// and a [*CorruptError] for damage and for a position that is not a record's. Records skips
// losses that Options.AcceptLoss accepted; the Seq of the next record shows them.
// Iterations do not delay appends.
func (l *Log) Records(from Position) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		l.mu.Lock()
		closed, end := l.closed, l.end
		segs := append([]segment(nil), l.segments...)
		l.mu.Unlock()
		if closed {
			yield(Record{}, l.pathError("read", errClosed))
			return
		}
		r := logReader{store: l.store, yield: yield}
		r.run(segs, from, &end)
	}
}

// ReadOptions configure [Read].
type ReadOptions struct {
	Prefix string   // as in Options
	From   Position // as in Log.Records
	// Salvage makes the iteration continue after damage. It yields a *CorruptError with
	// the number of lost records for each damaged place. A batch may then be yielded in
	// part.
	Salvage bool
}

// Read reads a log without opening it for appending. It changes nothing, takes no lock,
// and may run while a Log is open, in this process or in another. It may yield a record
// before the record's append returns. It does not yield the remains of an interrupted
// write at the end. Errors are as in [Log.Records]. If durable records are missing at the
// end of the log, the iteration ends with a [*CorruptError].
func Read(dir string, o ReadOptions) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		st, err := openDirStore(dir, 0)
		if err != nil {
			yield(Record{}, err)
			return
		}
		defer st.Close()
		readRecords(st, o)(yield)
	}
}

func readRecords(st segmentStore, o ReadOptions) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		// While a Log is open, the order matters. The end in the first mark and the
		// beginning in the second are valid for the list that is read in between.
		before, marked, err := findMark(st, o.Prefix)
		if err != nil {
			yield(Record{}, err)
			return
		}
		segs, _, err := listSegments(st, o.Prefix)
		if err != nil {
			yield(Record{}, err)
			return
		}
		after, found, err := findMark(st, o.Prefix)
		if err != nil {
			yield(Record{}, err)
			return
		}
		r := logReader{store: st, yield: yield, salvage: o.Salvage}
		if !r.compare(segs, &after, found) || !r.run(segs, o.From, nil) {
			return
		}
		if !marked {
			before = endMark{}
		}
		r.missing(segs, before.end, found, o.Prefix)
	}
}

// compare checks the list of segments against the mark and yields the differences. It
// reports false when the iteration is over.
func (r *logReader) compare(segs []segment, m *endMark, found bool) bool {
	if len(segs) == 0 {
		return true
	}
	for i := range segs {
		if g := &segs[i]; found && g.log != 0 && g.log != m.log {
			g.disown()
		}
	}
	for _, g := range checkSegments(r.store, segs, m.first) {
		if r.salvage && g.after >= 0 {
			continue // found again in its place
		}
		if !r.yield(Record{}, &g.CorruptError) || !r.salvage {
			return false
		}
	}
	return true
}

// missing yields an error if durable records are missing at the end of the log.
func (r *logReader) missing(segs []segment, end Position, found bool, prefix string) {
	e := &CorruptError{Path: r.store.Path(prefix + markSuffix), At: end}
	if len(segs) == 0 {
		if e.Reason = "all segments are missing"; end.Segment > 0 {
			r.yield(Record{}, e)
		}
		return
	}
	g := &segs[len(segs)-1]
	switch {
	case r.seq < end.Seq:
		e.Path, e.At = r.store.Path(g.name), Position{Segment: g.index, Offset: g.size, Seq: r.seq}
		e.Reason, e.Lost = endsEarly, end.Seq-r.seq
	case !found && g.log != 0:
		e.At, e.Reason = Position{Segment: g.index, Seq: r.seq}, noMark
	case g.sealed && g.version > 1 && !r.exists(segmentName(prefix, g.index+1)):
		e.Path, e.At = r.store.Path(g.name), Position{Segment: g.index, Offset: g.size, Seq: r.seq}
		e.Reason = fmt.Sprintf(noNext, g.index+1)
	default:
		return
	}
	r.yield(Record{}, e)
}

func (r *logReader) exists(name string) bool {
	f, err := r.store.Open(name, false)
	if err == nil {
		f.Close()
	}
	return !errors.Is(err, fs.ErrNotExist)
}

// logReader yields the records of successive segments.
type logReader struct {
	store   segmentStore
	yield   func(Record, error) bool
	salvage bool
	seq     uint64 // of the next record, 0 when unknown
	skip    bool   // the damage in this segment was accepted: it is stepped over without an error
	scan    scanner
}

// run reads from a position to end, or to the end of the log if end is nil. It reports
// whether it got there.
func (r *logReader) run(segs []segment, from Position, end *Position) bool {
	switch {
	case len(segs) == 0 && from == (Position{}):
		return true
	case len(segs) > 0 && (from == (Position{}) || from.Segment < segs[0].index && from.Seq == segs[0].firstSeq):
		// The beginning, or the end of the last segment that was trimmed, which is the same.
		from = Position{Segment: segs[0].index, Offset: segmentHeaderSize, Seq: segs[0].firstSeq}
	case len(segs) == 0 || from.Segment < segs[0].index || from.Segment > segs[len(segs)-1].index:
		r.yield(Record{}, &fs.PathError{Op: "read", Path: r.store.Path(fmt.Sprintf("segment %d", from.Segment)), Err: fs.ErrNotExist})
		return false
	}
	r.seq = from.Seq
	for i, g := range segs {
		if g.index < from.Segment {
			continue
		}
		off := int64(segmentHeaderSize)
		if g.index == from.Segment {
			off = max(off, from.Offset)
		}
		var next *segment
		if i+1 < len(segs) {
			next = &segs[i+1]
		}
		if !r.segment(g, off, next, end) {
			return false
		}
	}
	return true
}

// segment yields the records of one segment; false ends the iteration.
func (r *logReader) segment(g segment, off int64, next *segment, end *Position) bool {
	f, err := r.store.Open(g.name, false)
	if err != nil {
		r.yield(Record{}, err)
		return false
	}
	defer f.Close()
	r.scan = scanner{f: f, seed: g.seed, win: r.scan.win[:0]}
	if r.scan.size, err = f.Size(); err != nil {
		r.yield(Record{}, err)
		return false
	}
	limit, err := r.limit(g, next, end)
	if err != nil {
		r.yield(Record{}, err)
		return false
	}
	r.skip = !r.salvage && g.accepted(next)
	switch {
	case g.bad != "":
		if !r.damage(g, 0, g.bad, 0) {
			return false
		}
		if g.foreign {
			r.seq = limit.seq
			return true
		}
		r.scan.reseed()
	case r.seq == 0:
		r.seq = g.firstSeq
	}
	return r.records(g, off, limit)
}

// bound is the end of a segment's records: an offset, or the number of the first record
// of the next segment.
type bound struct {
	off int64
	seq uint64 // 0: the offset counts
}

// limit returns the bound of a segment.
func (r *logReader) limit(g segment, next *segment, end *Position) (bound, error) {
	switch {
	case next != nil && g.sealed:
		return bound{off: r.scan.size - sealSize, seq: next.firstSeq}, nil
	case next != nil:
		return bound{off: r.scan.size, seq: next.firstSeq}, nil
	case end != nil:
		return bound{off: end.Offset}, nil
	case g.bad != "":
		return bound{off: r.scan.size}, nil
	}
	t, err := r.scan.scanTail(g.firstSeq)
	if err != nil {
		return bound{}, err
	}
	if t.damaged { // the end lies behind the damage
		return bound{off: r.scan.size}, nil
	}
	return bound{off: t.end}, nil
}

// records yields what lies between off and the limit.
func (r *logReader) records(g segment, off int64, limit bound) bool {
	for off < limit.off && (limit.seq == 0 || r.seq < limit.seq) {
		e, reason, err := r.scan.record(off)
		if err != nil {
			r.yield(Record{}, err)
			return false
		}
		switch {
		case reason == "" && e.next > limit.off:
			reason = badLength
		case reason == "" && r.seq != 0 && e.seq != r.seq:
			reason = badSeq
			e.next = off // the reading may continue with this record
		}
		if reason != "" {
			if off, err = r.step(g, off, e.next, reason, limit); off < 0 {
				if err != nil {
					r.yield(Record{}, err)
				}
				return false
			}
			continue
		}
		r.seq = e.seq + 1
		if !r.yield(Record{Position{g.index, e.off, e.seq}, e.data}, nil) {
			return false
		}
		off = e.next
	}
	if limit.seq != 0 && r.seq < limit.seq { // the file is too short
		ok := r.damage(g, off, missing, limit.seq-r.seq)
		r.seq = limit.seq
		return ok
	}
	return true
}

// step yields damage and returns the offset at which to continue, -1 to end the
// iteration.
func (r *logReader) step(g segment, off, next int64, reason string, limit bound) (int64, error) {
	if !r.salvage && !r.skip {
		r.damage(g, off, reason, 0)
		return -1, nil
	}
	e, ok, err := r.scan.resume(next, max(r.seq, 1))
	if err != nil {
		return -1, err
	}
	ok = ok && e.off < limit.off
	if !ok && limit.seq == 0 { // the end, torn or zero
		return limit.off, nil
	}
	resumed, lost := limit.off, uint64(0)
	if ok {
		resumed = e.off
		lost = e.seq - r.seq
	} else if limit.seq != 0 {
		lost = limit.seq - r.seq
	}
	if r.seq == 0 {
		lost = 0
	}
	if !r.damage(g, off, reason, lost) {
		return -1, nil
	}
	if r.seq += lost; r.seq == 0 && ok {
		r.seq = e.seq
	}
	return resumed, nil
}

// damage yields a CorruptError, unless the loss was accepted; false ends the
// iteration.
func (r *logReader) damage(g segment, off int64, reason string, lost uint64) bool {
	if r.skip {
		return true
	}
	err := &CorruptError{Path: r.store.Path(g.name), At: Position{g.index, off, r.seq}, Reason: reason, Lost: lost}
	return r.yield(Record{}, err) && r.salvage
}

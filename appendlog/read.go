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

// readRecords reports missing segments first, then the records, then those missing at the end. With
// Salvage it continues after each of these errors.
func readRecords(st segmentStore, o ReadOptions) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		c, err := takeCensus(st, o.Prefix)
		if err != nil {
			yield(Record{}, err)
			return
		}
		r := logReader{store: st, yield: yield, salvage: o.Salvage, mark: &c.before}
		if c.state != markWhole {
			r.mark = nil
		}
		for _, g := range c.gaps {
			if r.salvage && g.after >= 0 {
				continue // found again in its place
			}
			if !r.yield(Record{}, &g.CorruptError) || !r.salvage {
				return
			}
		}
		if r.run(c.segs, o.From, nil) {
			r.missing(&c, o.Prefix)
		}
	}
}

// census is what a reader finds of a log, which may change meanwhile.
type census struct {
	before endMark // read before the segments were listed
	state  markState
	segs   []segment
	gaps   []gap // between the segments
}

// takeCensus reads the mark and the segments of a log. A list that is read while segments
// are created and removed may lack some of them, so a gap counts if it is found twice.
func takeCensus(st segmentStore, prefix string) (c census, err error) {
	const tries = 10
	var last gap
	for range tries {
		if c, err = listOnce(st, prefix); err != nil || len(c.gaps) == 0 || c.gaps[0] == last {
			return c, err
		}
		last = c.gaps[0]
	}
	return c, nil
}

// listOnce is takeCensus without the repetition. The order matters. The end in the first
// mark and the beginning in the second are valid for the list that is read in between.
func listOnce(st segmentStore, prefix string) (c census, err error) {
	if c.before, c.state, err = findMark(st, prefix); err != nil {
		return c, err
	}
	if c.segs, _, err = listSegments(st, prefix); err != nil {
		return c, err
	}
	after, state, err := findMark(st, prefix)
	if err != nil || len(c.segs) == 0 {
		return c, err
	}
	if c.state == markGone && state != markGone {
		c.before, c.state = endMark{}, state // the log is new
	}
	for i := range c.segs {
		if g := &c.segs[i]; state >= markHalf && g.log != 0 && g.log != after.log {
			g.disown()
		}
	}
	c.gaps = checkSegments(st, c.segs, after.first)
	return c, nil
}

// missing yields an error if durable records are missing at the end of the log.
func (r *logReader) missing(c *census, prefix string) {
	end := c.before.end
	e := &CorruptError{Path: r.store.Path(prefix + markSuffix), At: end}
	if len(c.segs) == 0 {
		if e.Reason = "all segments are missing"; c.state == markBad || c.state == markHalf {
			e.Reason += "; " + c.state.flaw()
		} else if end.Segment == 0 {
			return
		}
		r.yield(Record{}, e)
		return
	}
	g := &c.segs[len(c.segs)-1]
	switch {
	case r.seq < end.Seq:
		e.Path, e.At = r.store.Path(g.name), Position{Segment: g.index, Offset: g.size, Seq: r.seq}
		e.Reason, e.Lost = endsEarly, end.Seq-r.seq
	case c.state != markWhole && (g.version != 1 || c.state != markGone):
		e.At, e.Reason = Position{Segment: g.index, Seq: r.seq}, c.state.flaw()
	case g.sealed && g.version > 1 && r.lacks(g.index+1, prefix):
		e.Path, e.At = r.store.Path(g.name), Position{Segment: g.index, Offset: g.size, Seq: r.seq}
		e.Reason = fmt.Sprintf(noNext, g.index+1)
	default:
		return
	}
	r.yield(Record{}, e)
}

// lacks reports whether a segment is missing that Trim did not remove.
func (r *logReader) lacks(index uint64, prefix string) bool {
	f, err := r.store.Open(segmentName(prefix, index), false)
	if err == nil {
		f.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	m, _, err := findMark(r.store, prefix)
	return err == nil && m.first <= index
}

// logReader yields the records of successive segments.
type logReader struct {
	store   segmentStore
	yield   func(Record, error) bool
	salvage bool
	mark    *endMark   // how far records are known to be durable, nil if that is not known
	seq     uint64     // of the next record, 0 when unknown
	skip    bool       // all damage in this segment was accepted, as earlier versions noted it
	known   []loss     // accepted in this segment, from where the reading is on
	lost    func(loss) // is called by a reading with salvage; may be nil
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
	accepted := !r.salvage && g.accepted(next)
	r.skip, r.known = accepted && g.seal.flags&sealListed == 0, nil
	if g.sealed && (accepted || r.salvage) {
		r.known = g.losses
	}
	switch {
	case g.bad != "":
		if !accepted && !r.damage(g, 0, g.bad, 0) {
			return false
		}
		if g.foreign {
			r.pass(loss{off: segmentHeaderSize, next: limit.off, from: r.seq, to: limit.seq})
			return true
		}
		if err := r.scan.reseed(); err != nil {
			r.yield(Record{}, err)
			return false
		}
	case r.seq == 0:
		r.seq = g.firstSeq
	}
	return r.records(g, off, limit)
}

// bound is the end of a segment's records: an offset, and the number of the first record
// of the next segment.
type bound struct {
	off  int64
	seq  uint64 // 0: the offset counts
	last bool   // there is no next segment
}

// limit returns the bound of a segment.
func (r *logReader) limit(g segment, next *segment, end *Position) (bound, error) {
	size := r.scan.size
	switch {
	case next != nil:
		return bound{off: g.content(size), seq: g.nextSeq(next)}, nil
	case end != nil:
		return bound{off: end.Offset, last: true}, nil
	case g.bad != "" || r.salvage && r.mark == nil:
		return bound{off: size, last: true}, nil
	}
	t, err := r.scan.scanTail(g.firstSeq)
	if err != nil {
		return bound{}, err
	}
	if t.damaged || r.salvage && r.mark.end.Seq > t.seq { // the end lies behind the damage
		return bound{off: size, last: true}, nil
	}
	return bound{off: t.end, last: true}, nil
}

// records yields what lies between off and the limit.
func (r *logReader) records(g segment, off int64, limit bound) bool {
	for off < limit.off && (limit.seq == 0 || r.seq < limit.seq) {
		if d, ok := r.accepted(off); ok {
			if off = d.next; !r.again(g, d) {
				return false
			}
			continue
		}
		e, reason, err := r.scan.record(off)
		if err != nil {
			r.yield(Record{}, err)
			return false
		}
		switch {
		case reason == "" && e.next > limit.off:
			reason = badLength
		case reason == "" && limit.seq != 0 && e.seq >= limit.seq:
			reason = badSeq
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
	for limit.seq != 0 && r.seq < limit.seq { // the file is too short
		if d, ok := r.accepted(off); ok {
			if !r.again(g, d) {
				return false
			}
			continue
		}
		ok := r.damage(g, off, missing, limit.seq-r.seq)
		r.pass(loss{off: off, next: off, from: r.seq, to: limit.seq})
		return ok
	}
	return true
}

// accepted returns the accepted loss that begins at an offset, and steps over it.
func (r *logReader) accepted(off int64) (d loss, ok bool) {
	for len(r.known) > 0 && r.known[0].off < off {
		r.known = r.known[1:]
	}
	if len(r.known) == 0 || r.known[0].off != off {
		return d, false
	}
	d = r.known[0]
	r.known = r.known[1:]
	r.pass(d)
	return d, true
}

// again yields an accepted loss if the reading is one with Salvage.
func (r *logReader) again(g segment, d loss) bool {
	return !r.salvage || d.next == d.off && d.from == 0 || r.damage(g, d.off, accepted, lostIn([]loss{d}))
}

// pass steps over a loss.
func (r *logReader) pass(d loss) {
	if r.lost != nil {
		r.lost(d)
	}
	if d.to != 0 {
		r.seq = d.to
	}
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
	d := loss{off: off, next: limit.off, from: r.seq, to: limit.seq}
	if ok = ok && e.next <= limit.off && (limit.seq == 0 || e.seq < limit.seq); ok {
		d.next, d.to = e.off, e.seq
	}
	lost := uint64(0)
	if d.from != 0 && d.to > d.from {
		lost = d.to - d.from
	}
	// Without a record behind it, it is the end of the log, torn or zero.
	if (d.to != 0 || !limit.last) && !r.damage(g, off, reason, lost) {
		return -1, nil
	}
	r.pass(d)
	return d.next, nil
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

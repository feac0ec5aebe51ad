// SPDX-License-Identifier: MIT

package appendlog

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// CorruptError reports damage that an interrupted write cannot have caused: acknowledged
// records are lost, or may be.
type CorruptError struct {
	Path   string // the segment's file, or the log's end mark
	At     Position
	Reason string
	// Lost is the number of lost records, as far as it is known. Open, and Read with
	// Salvage, set it.
	Lost uint64
}

// Error names the file, the place and the reason.
func (e *CorruptError) Error() string {
	lost := ""
	if e.Lost > 0 {
		lost = fmt.Sprintf(" (%d records that were durable are gone)", e.Lost)
	}
	return fmt.Sprintf("appendlog: %s is damaged at offset %d, record %d: %s%s", e.Path, e.At.Offset, e.At.Seq, e.Reason, lost)
}

// Recovery describes the log as Open found it.
type Recovery struct {
	Segments int    // number of segments
	Records  uint64 // number of records in the last segment that had any
	// Clean reports whether Close ended the log. If not, the process or the machine
	// stopped while the log was open.
	Clean bool
	// Marked is the position in the end mark: every record before it was durable. Open
	// refuses a log that ends before it, unless AcceptLoss is set.
	Marked Position
	// End is the position after the last whole record, at which the log continues.
	End Position
	// Dropped is the number of bytes that were cut off after End, in the segment of End.
	// They are the remains of an interrupted write, none of whose appends had returned.
	Dropped int64
	// Reason describes why these bytes are not records. It is empty if Dropped is 0.
	Reason string
	// Unfinished is the number of files that were removed because the creation of their
	// segment was interrupted.
	Unfinished int
	// Lost lists the places where durable records are missing and Options.AcceptLoss
	// accepted that, in the order of the log.
	Lost []CorruptError
}

// recovered holds what Open finds in a log before it changes anything.
type recovered struct {
	segs    []segment
	gaps    []gap
	losses  map[int][]loss // of the segments whose losses are to be accepted
	reseal  map[int]int64  // segments that are complete and lack their seal: where it belongs
	tail    tail           // of the last segment
	scan    scanner        // of the last segment
	nextSeq uint64         // number of the next record
	broken  bool           // the last segment takes no more records
	// unproven is set if the mark does not show how far the log was durable, and which
	// numbers were used.
	unproven bool
	readSeq  uint64 // number behind the last record that can be read; after survey
}

// recover finds the end of the log, makes it whole and opens it for writing.
func (l *Log) recover() error {
	r, unfinished, err := l.claim()
	if err != nil {
		return err
	}
	l.recovery.Clean, l.recovery.Marked = l.mark.clean, l.mark.end
	if err := l.inspect(r); err != nil {
		return err
	}
	if len(r.gaps) > 0 && !l.opts.AcceptLoss {
		return fmt.Errorf("%w; set Options.AcceptLoss to continue without the lost records", &r.gaps[0].CorruptError)
	}
	if l.opts.AcceptLoss {
		if err := l.survey(r); err != nil {
			return err
		}
	}
	for _, name := range unfinished {
		if err := l.store.Remove(name); err != nil {
			return err
		}
	}
	l.recovery.Unfinished = len(unfinished)
	// A process that was killed may have left names that are not durable. repair writes
	// seals, each of which states that the next segment is.
	if err := l.store.Sync(); err != nil {
		return err
	}
	if err := l.settle(r.segs); err != nil {
		return err
	}
	if err := l.repair(r); err != nil {
		return err
	}
	if err := l.resume(r); err != nil {
		return err
	}
	l.recovery.Segments = len(l.segments)
	for i := range r.gaps {
		l.recovery.Lost = append(l.recovery.Lost, r.gaps[i].CorruptError)
	}
	return nil
}

// claim locks the log and lists its segments. It sets l.file to the last segment.
func (l *Log) claim() (r *recovered, unfinished []string, err error) {
	const tries = 10 // another process may open and close the log meanwhile
	for range tries {
		r = &recovered{losses: map[int][]loss{}, reseal: map[int]int64{}}
		if err = l.mark.open(); err != nil {
			return nil, nil, err
		}
		if r.segs, unfinished, err = listSegments(l.store, l.opts.Prefix); err != nil {
			return nil, nil, err
		}
		if len(r.segs) > 0 {
			name := r.segs[len(r.segs)-1].name
			if l.file, err = l.store.Open(name, true); err == nil {
				err = lock(l.file, l.store.Path(name))
			}
		} else if l.mark.state == markGone { // a new log has a mark before it has a segment
			l.mark.endMark = endMark{log: newLogID(), end: Position{Seq: 1}}
			err = l.mark.create()
		}
		if err != nil {
			return nil, nil, err
		}
		// The log may have changed before it was locked.
		same, err := l.unchanged(r)
		if err == nil && same && l.file != nil && !l.mark.clean {
			err = l.reread(&r.segs[len(r.segs)-1])
		}
		if err != nil || same {
			return r, unfinished, err
		}
		if l.file != nil {
			l.file.Close()
			l.file = nil
		}
		if l.mark.file != nil {
			l.mark.file.Close()
			l.mark.file = nil
		}
	}
	return nil, nil, l.pathError("lock", ErrInUse)
}

// reread reads the header and the seal of the last segment again, from the disk. The process that wrote it may have been
// killed while a write to the disk failed.
func (l *Log) reread(g *segment) error {
	l.file.Uncache()
	*g = segment{name: g.name, index: g.index}
	return g.read(l.store)
}

// newLogID returns a random ID.
func newLogID() uint64 { return rand.Uint64() | 1 }

// unchanged reports whether the log is still as claim found it.
func (l *Log) unchanged(r *recovered) (bool, error) {
	if l.mark.file != nil && l.mark.file.Check() != nil || l.file != nil && l.file.Check() != nil {
		return false, nil
	}
	names, err := l.store.List()
	if err != nil {
		return false, err
	}
	n := 0
	for _, name := range names {
		if _, ok := segmentIndex(l.opts.Prefix, name); ok {
			n++
		}
	}
	return n == len(r.segs), nil
}

// inspect finds the gaps and the end of the log. It changes nothing.
func (l *Log) inspect(r *recovered) error {
	n := len(r.segs)
	l.inspectMark(r)
	r.nextSeq = max(l.mark.end.Seq, 1)
	if n == 0 {
		return nil
	}
	if g := &r.segs[n-1]; g.index > maxIndex {
		return &CorruptError{Path: l.store.Path(g.name), At: Position{Segment: g.index, Seq: g.firstSeq},
			Reason: "no segment has so high a number; give the file its name back, or move it away"}
	}
	r.gaps = append(r.gaps, checkSegments(l.store, r.segs, l.mark.first)...)
	for i := range n - 1 {
		if err := l.inspectUnsealed(r, i); err != nil {
			return err
		}
	}
	err := l.inspectLast(r)
	slices.SortStableFunc(r.gaps, func(a, b gap) int { return a.after - b.after })
	return err
}

// lose notes a gap.
func (r *recovered) lose(after int, e CorruptError) {
	r.gaps = append(r.gaps, gap{CorruptError: e, after: after})
}

// inspectMark checks that there is a mark, that it is whole and that it belongs to the
// segments.
func (l *Log) inspectMark(r *recovered) {
	id, old, at := uint64(0), false, l.mark.end
	for _, g := range r.segs {
		if g.log != 0 {
			id = g.log
		}
		old = old || g.version == 1
	}
	if len(r.segs) > 0 {
		at = Position{Segment: r.segs[0].index, Seq: r.segs[0].firstSeq}
	} else if l.mark.end.Segment > 0 {
		r.lose(-1, CorruptError{Path: l.store.Path(l.opts.Prefix), At: at, Reason: "all segments are missing"})
	}
	withoutMark := old && id == 0 && l.mark.state == markGone // a log of version 1
	if flaw := l.mark.state.flaw(); flaw != "" && !withoutMark {
		r.unproven = true
		r.lose(-1, CorruptError{Path: l.store.Path(l.mark.name), At: at, Reason: flaw})
	}
	if l.mark.state < markHalf {
		l.mark.log = cmp.Or(id, newLogID())
	}
	for i := range r.segs {
		if g := &r.segs[i]; g.log != 0 && g.log != l.mark.log {
			g.disown()
		}
	}
}

// inspectUnsealed reads a segment that has no seal although another segment follows. Such
// a segment is left by an interrupted rotation and has all its records. If the header of
// the next segment is damaged, nothing shows whether it has.
func (l *Log) inspectUnsealed(r *recovered, i int) error {
	g, next := &r.segs[i], &r.segs[i+1]
	if g.sealed || g.version < 2 || g.bad != "" || next.index != g.index+1 {
		return nil
	}
	f, err := l.store.Open(g.name, false)
	if err != nil {
		return err
	}
	defer f.Close()
	s := scanner{f: f, seed: g.seed, size: g.size}
	t, err := s.scanTail(g.firstSeq)
	if err != nil {
		return err
	}
	if !t.damaged && t.seq == next.firstSeq && next.bad == "" {
		r.reseal[i] = t.end
		return nil
	}
	e := CorruptError{Path: l.store.Path(g.name), At: Position{Segment: g.index, Offset: t.end, Seq: t.seq}, Reason: missing}
	switch {
	case t.damaged:
		e.Reason = t.reason
	case next.bad != "":
		e.Reason = noSeal
	case next.firstSeq > t.seq:
		e.Lost = next.firstSeq - t.seq
	}
	r.lose(i, e)
	return nil
}

// inspectLast finds the end of the log.
func (l *Log) inspectLast(r *recovered) error {
	i := len(r.segs) - 1
	g, m := &r.segs[i], &l.mark
	path := l.store.Path(g.name)
	r.scan = scanner{f: l.file, seed: g.seed, size: g.size}
	if g.bad != "" || g.sealed && g.version > 1 {
		r.broken = true
		if g.bad == "" {
			e := CorruptError{Path: path, At: Position{Segment: g.index, Offset: g.size, Seq: g.seal.nextSeq},
				Reason: fmt.Sprintf(noNext, g.index+1)}
			if m.end.Seq > g.seal.nextSeq {
				e.Lost = m.end.Seq - g.seal.nextSeq
			}
			r.lose(i, e)
		}
		return nil
	}
	t, err := r.scan.scanTail(g.firstSeq)
	if err != nil {
		return err
	}
	r.tail = t
	e := CorruptError{Path: path, At: Position{Segment: g.index, Offset: t.end, Seq: t.seq}}
	switch {
	case t.damaged:
		e.Reason = t.reason
	case m.end.Seq > t.seq:
		e.Reason, e.Lost = endsEarly, m.end.Seq-t.seq
		if m.end.Segment > g.index {
			e.Reason = fmt.Sprintf(noNext, g.index+1)
		}
	case r.unproven:
		r.broken = true // no record gets a number that a lost one may have had
		if t.dropped == 0 {
			return nil
		}
		e.Reason = t.reason // these bytes may be durable records
	default:
		r.nextSeq = t.seq
		return nil
	}
	r.broken = true
	r.lose(i, e)
	return nil
}

// survey reads all segments and finds what has to be accepted: the losses of each segment
// that has damage or precedes a gap. It changes nothing.
func (l *Log) survey(r *recovered) error {
	var damage []CorruptError
	var failure error
	rd := logReader{store: l.store, salvage: true}
	at := 0 // the segment that is read
	rd.lost = func(d loss) { r.losses[at] = append(r.losses[at], d) }
	rd.yield = func(rec Record, err error) bool {
		if d, ok := err.(*CorruptError); ok {
			damage = append(damage, *d)
		} else if failure = err; err == nil && rec.Offset == segmentHeaderSize && r.segs[at].bad != "" && len(r.losses[at]) == 0 {
			rd.lost(loss{off: rec.Offset, next: rec.Offset, to: rec.Seq}) // no header states the number
		}
		return failure == nil
	}
	for last := len(r.segs) - 1; at <= last; at++ {
		if at == last && !r.broken {
			break
		}
		g, next := &r.segs[at], (*segment)(nil)
		if at < last {
			next = &r.segs[at+1]
		}
		damage = damage[:0]
		if at == 0 {
			rd.seq = g.firstSeq
		}
		if !rd.segment(*g, segmentHeaderSize, next, nil) {
			return failure
		}
		g.seed = rd.scan.seed
		r.judge(at, next, damage)
	}
	r.readSeq = rd.seq
	slices.SortStableFunc(r.gaps, func(a, b gap) int { return a.after - b.after })
	return nil
}

// judge compares the damage in a segment with what was accepted before, and with the gap
// behind it.
func (r *recovered) judge(i int, next *segment, damage []CorruptError) {
	var known []loss
	if g := &r.segs[i]; g.accepted(next) {
		if known = g.losses; g.seal.flags&sealListed == 0 {
			delete(r.losses, i)
			return
		}
	}
	isKnown := func(d loss) bool {
		return slices.ContainsFunc(known, func(k loss) bool { return k.off == d.off && k.next == d.next && k.to == d.to })
	}
	fresh := slices.DeleteFunc(slices.Clone(r.losses[i]), isKnown)
	if r.setLost(i, fresh) {
		return
	}
	if known != nil && len(fresh) == 0 || len(damage) == 0 {
		if next != nil { // begin needs those of the last segment
			delete(r.losses, i)
		}
		return
	}
	for _, e := range damage {
		old := slices.ContainsFunc(known, func(k loss) bool { return k.off == e.At.Offset || e.At.Offset == 0 })
		if !old || slices.ContainsFunc(fresh, func(d loss) bool { return d.off == e.At.Offset }) {
			r.gaps = append(r.gaps, gap{after: i, CorruptError: e})
		}
	}
}

// setLost sets the number of lost records of the gap behind a segment. It returns false if
// there is no gap.
func (r *recovered) setLost(after int, losses []loss) (found bool) {
	unknown := slices.ContainsFunc(losses, func(d loss) bool { return d.from == 0 || d.to == 0 })
	for i := range r.gaps {
		g := &r.gaps[i]
		switch {
		case g.after != after:
		case found:
			g.Lost = 0 // the first one has all
		default:
			found = true
			if n := lostIn(losses); !unknown || n > g.Lost {
				g.Lost = n
			}
		}
	}
	return found
}

// settle makes the seals durable by which losses were accepted. A process that was killed
// may have written them without a sync, and without them a later Open would refuse the
// log. Every other seal is written again when it is missing.
func (l *Log) settle(segs []segment) error {
	for i := range segs {
		g := &segs[i]
		if !g.sealed || g.seal.flags&sealAccepted == 0 {
			continue
		}
		f, err := l.store.Open(g.name, true)
		if err != nil {
			return err
		}
		err = g.writeSeal(f)
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// repair writes the missing seals of interrupted rotations. It adds a list of the accepted
// losses and a seal to each segment that has some, and changes nothing else in it.
func (l *Log) repair(r *recovered) error {
	for i, at := range r.reseal {
		if err := l.finishSegment(&r.segs[i], at, r.segs[i+1]); err != nil {
			return err
		}
	}
	for i, last := 0, -1; i < len(r.gaps); i++ {
		after := r.gaps[i].after
		if after == last || after < 0 || after == len(r.segs)-1 {
			continue // saveMark notes the first kind, begin seals the last segment
		}
		last = after
		g, losses := &r.segs[after], r.losses[after]
		if g.sealed { // the reading must step over the old seal
			losses = append(losses, loss{off: g.content(g.size), next: g.size})
		}
		if err := l.accept(g, losses, &r.segs[after+1]); err != nil {
			return err
		}
	}
	return nil
}

// finishSegment cuts a complete segment behind its last record and seals it.
func (l *Log) finishSegment(g *segment, at int64, next segment) error {
	f, err := l.store.Open(g.name, true)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(at); err != nil {
		return err
	}
	return g.end(f, at, next.index, next.firstSeq)
}

// accept notes in a segment which losses were accepted.
func (l *Log) accept(g *segment, losses []loss, next *segment) error {
	f, err := l.store.Open(g.name, true)
	if err != nil {
		return err
	}
	defer f.Close()
	if g.log == 0 || g.foreign {
		g.log = l.mark.log // of the seal
	}
	return g.accept(f, losses, next)
}

// resume continues behind the last record, in its segment or in a new one.
func (l *Log) resume(r *recovered) error {
	n := len(r.segs)
	if n == 0 || r.broken {
		return l.begin(r)
	}
	g := r.segs[n-1]
	if err := l.restore(&r.scan, r.tail); err != nil {
		return err
	}
	l.start(g, r.tail.end, r.tail.seq)
	l.segments = r.segs
	l.recovery.Records, l.recovery.Dropped, l.recovery.Reason = r.tail.records, r.tail.dropped, r.tail.reason
	l.recovery.End = l.end
	if err := l.saveMark(); err != nil || g.version > 1 {
		return err
	}
	return l.rotate() // a segment of version 1 takes no more records
}

// begin creates the first segment of a log, or the segment after a loss.
func (l *Log) begin(r *recovered) error {
	index := l.mark.end.Segment
	if n := len(r.segs); n > 0 {
		index = max(index, r.segs[n-1].index)
		if g := &r.segs[n-1]; g.sealed {
			index = max(index, g.seal.nextIndex)
		}
	}
	seq, err := l.freeSeq(r)
	if err != nil {
		return err
	}
	g, f, err := createSegment(l.store, l.opts.Prefix, index+1, seq, l.mark.log)
	if err != nil {
		return err
	}
	if l.file != nil {
		l.file.Close()
	}
	l.file = f
	if n := len(r.segs); n > 0 {
		if err := l.accept(&r.segs[n-1], r.lossesAtEnd(seq), &g); err != nil {
			return err
		}
	}
	l.start(g, segmentHeaderSize, g.firstSeq)
	l.segments = append(r.segs, g)
	l.recovery.End = l.end
	return l.saveMark()
}

// lossesAtEnd returns the losses of the last segment. seq is the number of the first
// record of the segment that is to follow.
func (r *recovered) lossesAtEnd(seq uint64) []loss {
	i := len(r.segs) - 1
	losses := r.losses[i]
	from := r.readSeq
	if r.unproven {
		from = 0
	}
	if n := len(losses); n > 0 && losses[n-1].to == 0 {
		losses[n-1].from, losses[n-1].to = from, seq
	} else if from != seq {
		at := max(r.segs[i].size, segmentHeaderSize)
		losses = append(losses, loss{off: at, next: at, from: from, to: seq})
	}
	r.setLost(i, losses)
	return losses
}

// freeSeq returns a number that no record has had. It is higher than every number that
// can be read, also with Salvage, and than every number in the mark.
func (l *Log) freeSeq(r *recovered) (uint64, error) {
	seq := max(r.nextSeq, r.readSeq, 1)
	for i := range r.segs {
		g := &r.segs[i]
		if seq = max(seq, g.firstSeq); g.sealed {
			seq = max(seq, g.seal.nextSeq)
			if g.seal.nextSeq != 0 {
				continue
			}
		}
		f, err := l.store.Open(g.name, false)
		if err != nil {
			return 0, err
		}
		s := scanner{f: f, seed: g.seed, size: g.size}
		if g.bad != "" {
			err = s.reseed()
		}
		highest := uint64(0)
		if err == nil {
			highest, err = s.highest(segmentHeaderSize)
		}
		f.Close()
		if err != nil {
			return 0, err
		}
		seq = max(seq, highest+1)
	}
	if r.unproven { // no log has appended a record in each microsecond
		seq = max(seq, uint64(time.Now().UnixMicro()))
	}
	return seq, nil
}

// saveMark saves the position at which the log continues.
func (l *Log) saveMark() error {
	return l.mark.save(func(m *endMark) {
		m.clean, m.end = false, l.end
		if first := l.segments[0].index; m.first == 0 || l.opts.AcceptLoss {
			m.first = max(m.first, first)
		}
	})
}

// start makes a segment the current one.
func (l *Log) start(g segment, off int64, seq uint64) {
	l.seg, l.off, l.seq = g, off, seq
	l.synced, l.written = off, off
	l.end = Position{Segment: g.index, Offset: off, Seq: seq}
}

// restore makes the scanned end of the last segment durable. It writes the records of the
// last group again. If their sync failed, the page cache shows them while the disk lacks
// them, and the kernel does not write them again. The sectors get the bytes that they
// have, so an interruption does no harm.
//
// restore cuts off everything after the last record and syncs the file. Otherwise the
// rest of an old group might look like the continuation of a new group before it.
func (l *Log) restore(s *scanner, t tail) error {
	for off := t.durable; off < t.end; {
		n := min(t.end-off, scanWindow)
		b, err := s.view(off, int(n))
		if err != nil {
			return err
		}
		if err := writeFull(l.file, b, off); err != nil {
			return err
		}
		off += n
	}
	if s.size > t.end {
		if err := l.file.Truncate(t.end); err != nil {
			return err
		}
	}
	return l.file.Sync(true)
}

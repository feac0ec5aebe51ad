// SPDX-License-Identifier: MIT

package appendlog

import "fmt"

// CorruptError says that a log is damaged where it cannot be the trace of an
// interrupted write: records that had been acknowledged are lost or may be.
type CorruptError struct {
	Path   string // the segment's file
	At     Position
	Reason string
	// Lost is how many records the damage cost, as far as that is known: set by
	// readers that step over it.
	Lost uint64
}

// Error names the file, the place and the reason.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("appendlog: %s is damaged at offset %d, record %d: %s", e.Path, e.At.Offset, e.At.Seq, e.Reason)
}

// Recovery is what Open found.
type Recovery struct {
	Segments int    // files of the log
	Records  uint64 // in the last of them
	// End is where the log went on: behind the last whole record.
	End Position
	// Dropped is how many bytes an interrupted write had left behind End, which
	// were cut off. No append that wrote them had returned.
	Dropped int64
	// Reason says why they are no records, "" when nothing was dropped.
	Reason string
	// Unfinished is how many new segments were removed whose creation had been
	// interrupted.
	Unfinished int
}

// recover finds the end of the log, makes it whole and opens it for writing.
func (l *Log) recover() error {
	segs, unfinished, err := listSegments(l.store, l.opts.Prefix)
	if err != nil {
		return err
	}
	if err := checkSegments(l.store, segs); err != nil {
		return err
	}
	for _, name := range unfinished {
		if err := l.store.Remove(name); err != nil {
			return err
		}
	}
	l.recovery.Unfinished = len(unfinished)
	if len(segs) == 0 {
		err = l.begin()
	} else {
		err = l.resume(segs)
	}
	l.recovery.Segments = len(l.segments)
	l.recovery.End = l.end
	return err
}

// checkSegments looks whether the segments are all there.
func checkSegments(st segmentStore, segs []segment) error {
	for i, g := range segs {
		reason := g.bad
		switch {
		case reason != "" || i == 0:
		case g.index != segs[i-1].index+1:
			reason = fmt.Sprintf("segment %d is missing before it", segs[i-1].index+1)
		case g.firstSeq <= segs[i-1].firstSeq:
			reason = badSeq
		}
		if reason != "" {
			return &CorruptError{Path: st.Path(g.name), At: Position{Segment: g.index, Seq: g.firstSeq}, Reason: reason}
		}
	}
	return nil
}

// begin creates the first segment of a log.
func (l *Log) begin() error {
	g, f, err := createSegment(l.store, l.opts.Prefix, 1, 1)
	if err != nil {
		return err
	}
	l.file = f
	l.start(g, segmentHeaderSize, 1)
	l.segments = []segment{g}
	return nil
}

// start makes a segment the one that is written.
func (l *Log) start(g segment, off int64, seq uint64) {
	l.seg, l.off, l.seq = g, off, seq
	l.synced, l.written = off, off
	l.end = Position{Segment: g.index, Offset: off, Seq: seq}
}

// resume opens the last segment, cuts off what is no record and makes the rest
// durable.
func (l *Log) resume(segs []segment) error {
	g := segs[len(segs)-1]
	f, err := l.store.Open(g.name, true)
	if err != nil {
		return err
	}
	l.file = f
	s := scanner{f: f, seed: g.seed}
	if s.size, err = f.Size(); err != nil {
		return err
	}
	t, err := s.scanTail(g.firstSeq)
	if err != nil {
		return err
	}
	at := Position{Segment: g.index, Offset: t.end, Seq: t.seq}
	if t.damaged {
		return &CorruptError{Path: l.store.Path(g.name), At: at, Reason: t.reason}
	}
	if err := l.restore(&s, t); err != nil {
		return err
	}
	l.start(g, t.end, t.seq)
	l.segments = segs
	l.recovery.Records, l.recovery.Dropped, l.recovery.Reason = t.records, t.dropped, t.reason
	return nil
}

// restore makes the end of the last segment what the scan found, on the disk and
// not only in memory. The records of the last group are written once more: had
// their sync failed, the page cache would show them while the disk lacks them,
// and the kernel would not write them again of its own accord. Its sectors get
// the bytes they have, so that an interruption does no harm.
//
// The cut is durable before anything else is written: the remains of an old
// group, behind a new one, might pass for its continuation.
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
	if err := l.file.Sync(true); err != nil {
		return err
	}
	return l.store.Sync() // the segment itself may be new, too
}

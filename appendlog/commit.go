// SPDX-License-Identifier: MIT

package appendlog

import "time"

// commit writes a group and makes it durable. The caller leads.
func (l *Log) commit(g *group) error {
	if l.off+g.size > segmentHeaderSize+l.opts.room() && l.off > segmentHeaderSize {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	if err := l.write(g); err != nil {
		return err
	}
	if l.opts.Sync == SyncNone {
		return nil
	}
	if err := l.extend(g.size); err != nil {
		return err
	}
	return l.sync()
}

// sync makes the segment durable. The caller leads.
func (l *Log) sync() error {
	start := time.Now()
	if err := l.file.Sync(l.opts.Sync == SyncFull); err != nil {
		return err
	}
	took := time.Since(start)
	// A later Open would not find records in a file that was renamed or deleted.
	if err := l.file.Check(); err != nil {
		return err
	}
	l.synced = l.off
	l.mark.advance(Position{Segment: l.seg.index, Offset: l.off, Seq: l.seq})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Syncs++
	l.stats.SyncTime += took
	l.stats.LongestSync = max(l.stats.LongestSync, took)
	return nil
}

// rotate seals the current segment and begins the next. The caller leads.
func (l *Log) rotate() error {
	if l.opts.Sync == SyncNone && l.off > l.synced {
		if err := l.sync(); err != nil {
			return err
		}
	}
	g, f, err := createSegment(l.store, l.opts.Prefix, l.seg.index+1, l.seq, l.mark.log)
	if err != nil {
		return err
	}
	if err := l.seal(g); err != nil {
		f.Close()
		return err
	}
	l.seg, l.file = g, f
	l.off, l.synced, l.written, l.block = segmentHeaderSize, segmentHeaderSize, segmentHeaderSize, 0

	l.mu.Lock()
	defer l.mu.Unlock()
	l.segments[len(l.segments)-1] = l.before
	l.segments = append(l.segments, g)
	l.stats.Rotations++
	l.end = Position{Segment: g.index, Offset: l.off, Seq: l.seq}
	return nil
}

// seal ends the current segment. The next segment must be durable. seal cuts off the
// zeros, writes the seal, syncs and closes the file. The seal is durable before a record
// of the next segment is acknowledged, so that the loss of that segment can be detected.
func (l *Log) seal(next segment) error {
	l.before = l.seg
	l.before.size = l.off
	if l.written > l.off {
		if err := l.file.Truncate(l.off); err != nil {
			return err
		}
	}
	l.through()
	if l.seg.version > 1 {
		if err := l.before.end(l.file, l.off, next.index, next.firstSeq); err != nil {
			return err
		}
	}
	_ = l.file.Close() // all of it is durable
	l.file = nil
	l.sealed = append(l.sealed, l.before.info(l.store))
	return nil
}

// SPDX-License-Identifier: MIT

package grouplog

import "sync"

// room makes room for n bytes after the last batch. The caller is the leader and holds the mutex,
// which room releases while it waits for a segment.
func (l *Log) room(n int64) error {
	for l.off+n > l.used[len(l.used)-1].size {
		switch {
		case l.failed != nil:
			return l.failed
		case len(l.free) > 0:
			l.use()
		case l.full:
			return errFull
		default:
			l.wakeProvider()
			l.changed.Wait()
		}
	}
	return nil
}

// use starts writing to a free segment.
func (l *Log) use() {
	seg := l.free[0]
	l.free = l.free[1:]
	seg.first, seg.last = l.seq, map[*WAL]uint64{}
	l.used = append(l.used, seg)
	l.off = 0
	if len(l.free) == 0 {
		l.wakeProvider()
	}
}

func (l *Log) wakeProvider() {
	select {
	case l.wakeup <- struct{}{}:
	default:
	}
}

// provideSegments provides a free segment before the leader needs it.
func (l *Log) provideSegments() {
	defer l.provider.Done()
	for {
		select {
		case <-l.quit:
			return
		case <-l.wakeup:
			l.provide()
		}
	}
}

// provide frees or adds a segment if there is no free one.
func (l *Log) provide() {
	l.mu.Lock()
	defer l.mu.Unlock()
	synced := false
	for l.failed == nil && len(l.free) == 0 {
		due := l.used[0].due()
		if dead := l.trim(); len(dead) > 0 {
			l.release(dead)
		} else if l.total < l.limit && (synced || len(l.used) < 2 || len(due) > fewWALs) {
			l.grow(l.header.segment)
		} else if !synced && len(l.used) > 1 {
			l.reclaim(due)
			synced = true
		} else {
			l.full = true
			break
		}
	}
	l.changed.Broadcast()
	switch {
	case l.failed != nil:
		l.abandon()
	case l.total < l.limit && l.outgrown():
		l.grow(growPiece)
	}
}

// growPiece is how much of a new segment is provided each time that a small one is reused. Otherwise the
// leader would wait for all of it, because a small segment is soon full.
const growPiece = 512 << 10

// outgrown reports whether the log has used its small first segments so often that larger ones pay:
// each time a segment is reused, WALs are synced. The caller holds the mutex.
func (l *Log) outgrown() bool {
	return l.used[len(l.used)-1].size < l.header.segment && l.stats.Reclaims >= manyReclaims
}

// abandon syncs the WALs whose commits are durable only in the failed log. The caller holds the
// mutex, which abandon releases in between.
func (l *Log) abandon() {
	var due []*WAL
	for w := range l.wals {
		due = append(due, w)
	}
	l.reclaim(due)
}

// addFree adds a free segment. It drops the small first segments once there are others and the log
// can grow. The caller holds the mutex.
func (l *Log) addFree(seg *segment) {
	if seg.size < l.header.segment && l.total > firstSegments && !l.cannotGrow {
		l.small = append(l.small, seg)
		return
	}
	l.free = append(l.free, seg)
}

// trim removes the oldest segments whose records are all durable in their WALs from the used ones,
// except the current segment. The caller holds the mutex.
func (l *Log) trim() (dead []*segment) {
	for len(l.used) > 1 && len(l.used[0].due()) == 0 {
		l.used[0].last = nil
		dead = append(dead, l.used[0])
		l.used = l.used[1:]
	}
	return dead
}

// release makes segments free. Before a segment is overwritten, the header must show that its
// batches are not needed, because the newest batch may be older than their end. The caller holds
// the mutex, which release releases while it writes.
func (l *Log) release(dead []*segment) {
	h := l.header
	h.live = l.used[0].first
	l.mu.Unlock()
	err := l.writeHeader(h)
	l.mu.Lock()
	if err != nil {
		l.fail(err)
		return
	}
	for _, seg := range dead {
		l.addFree(seg)
	}
}

// due returns the WALs with records in the segment that are still needed.
func (s *segment) due() (due []*WAL) {
	for w, last := range s.last {
		if w.synced.Load() < last {
			due = append(due, w)
		}
	}
	return due
}

// grow adds at most some bytes of a new segment to the file, and the segment when it is whole. If that fails, the
// log keeps its size. The caller holds the mutex, which grow releases while it writes.
func (l *Log) grow(most int64) {
	seg := &segment{off: l.segmentOffset(l.total), size: l.segmentSize(l.total)}
	n := min(most, seg.size-l.zeroed)
	l.mu.Unlock()
	err := zero(l.file, seg.off+l.zeroed, n)
	l.mu.Lock()
	if err != nil {
		l.limit, l.cannotGrow = l.total, true
		l.free, l.small = append(l.free, l.small...), nil
		return
	}
	if l.zeroed += n; l.zeroed == seg.size {
		l.zeroed = 0
		l.total++
		l.addFree(seg)
	}
}

// reclaimers is the number of WALs that are synced concurrently.
const reclaimers = 4

// reclaim syncs WALs whose records occupy a segment. The caller holds the mutex, which reclaim
// releases while it syncs.
func (l *Log) reclaim(due []*WAL) {
	l.stats.Reclaims++
	l.mu.Unlock()
	var wg sync.WaitGroup
	turn := make(chan struct{}, reclaimers)
	for _, w := range due {
		turn <- struct{}{}
		wg.Go(func() {
			w.reclaim()
			<-turn
		})
	}
	wg.Wait()
	l.mu.Lock()
}

// reclaim syncs the WAL unless it was synced or closed in the meantime.
func (w *WAL) reclaim() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed && w.Dirty() {
		w.sync(nil) // a failure is the WAL's
	}
}

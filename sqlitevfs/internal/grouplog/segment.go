// SPDX-License-Identifier: MIT

package grouplog

import (
	"errors"
	"sync"
	"syscall"
)

// room makes sure that n bytes fit behind the last batch. The caller leads and
// holds the mutex, which room gives up while it waits for a segment.
func (l *Log) room(n int64) error {
	if l.off+n <= l.header.segment {
		return nil
	}
	for {
		if l.failed != nil {
			return l.failed
		}
		if len(l.free) > 0 {
			l.use()
			return nil
		}
		l.wakeKeeper()
		l.changed.Wait()
	}
}

// use begins a free segment.
func (l *Log) use() {
	seg := l.free[0]
	l.free = l.free[1:]
	seg.first, seg.last = l.seq, map[*WAL]uint64{}
	l.used = append(l.used, seg)
	l.off = 0
	if len(l.free) == 0 {
		l.wakeKeeper()
	}
}

func (l *Log) wakeKeeper() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// keep has a free segment ready before the leader needs it.
func (l *Log) keep() {
	defer l.keeper.Done()
	for {
		select {
		case <-l.quit:
			return
		case <-l.kick:
			l.provide()
		}
	}
}

// provide frees or adds a segment when there is none.
func (l *Log) provide() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.failed == nil && len(l.free) == 0 {
		if dead := l.trim(); len(dead) > 0 {
			l.release(dead)
		} else if l.total < l.limit {
			l.grow()
		} else if len(l.used) > 1 {
			l.reclaim(l.used[0])
		} else {
			return
		}
	}
	l.changed.Broadcast()
}

// trim takes away the oldest segments whose records all are in their WALs. The
// segment being written stays. The caller holds the mutex.
func (l *Log) trim() (dead []*segment) {
	for len(l.used) > 1 && l.used[0].dead() {
		l.used[0].last = nil
		dead = append(dead, l.used[0])
		l.used = l.used[1:]
	}
	return dead
}

// release makes segments free. Before one is overwritten the header has to say
// that nobody will look for its batches: the newest batch may be older than
// their end. The caller holds the mutex, which release gives up while it writes.
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
	l.free = append(l.free, dead...)
}

// dead says whether nothing in the segment is needed.
func (s *segment) dead() bool {
	for w, last := range s.last {
		if w.synced.Load() < last {
			return false
		}
	}
	return true
}

// grow adds a segment to the file. On a full disk the log does with what it has.
// The caller holds the mutex, which grow gives up while it writes.
func (l *Log) grow() {
	off := firstBatch + int64(l.total)*l.header.segment
	l.mu.Unlock()
	err := zero(l.file, off, l.header.segment)
	l.mu.Lock()
	switch {
	case err == nil:
		l.total++
		l.free = append(l.free, &segment{off: off})
	case l.total >= minSegments && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)):
		l.limit = l.total
	default:
		l.fail(err)
	}
}

// reclaimers is how many WALs are synced at a time.
const reclaimers = 4

// reclaim syncs the WALs whose records keep a segment. The caller holds the
// mutex, which reclaim gives up while it syncs.
func (l *Log) reclaim(seg *segment) {
	var due []*WAL
	for w, last := range seg.last {
		if w.synced.Load() < last {
			due = append(due, w)
		}
	}
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

// reclaim syncs the WAL unless that happened, or the WAL was closed, meanwhile.
func (w *WAL) reclaim() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed && w.Dirty() {
		w.sync() // a failure is the log's
	}
}

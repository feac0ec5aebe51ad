// SPDX-License-Identifier: MIT

package grouplog

import (
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"runtime"
	"sync"
	"time"
)

// A waiter is one commit in the queue.
type waiter struct {
	next   *waiter
	wal    *WAL
	head   []byte // header and path of the record, with its CRC
	frames []byte
	size   int64 // of the record in the batch
	sum    uint32

	lead bool          // woken to lead
	wake chan struct{} // one token: done, or to lead
	err  error
}

var spare = sync.Pool{New: func() any { return &waiter{wake: make(chan struct{}, 1)} }}

// forget lets go of the caller's memory.
func (c *waiter) forget() { *c = waiter{wake: c.wake, head: c.head} }

// waiterList is a queue of waiters.
type waiterList struct{ head, tail *waiter }

func (q *waiterList) push(c *waiter) {
	if q.tail == nil {
		q.head = c
	} else {
		q.tail.next = c
	}
	q.tail = c
}

func (q *waiterList) pop() *waiter {
	c := q.head
	if q.head = c.next; q.head == nil {
		q.tail = nil
	}
	c.next = nil
	return c
}

// refusal returns why nothing may be queued. The caller holds the mutex.
func (l *Log) refusal() error {
	if l.closed {
		return &fs.PathError{Op: "commit", Path: l.path, Err: os.ErrClosed}
	}
	return l.failed
}

// submit queues a commit and returns when it is durable or failed.
func (l *Log) submit(c *waiter) error {
	l.mu.Lock()
	if err := l.refusal(); err != nil {
		l.mu.Unlock()
		return err
	}
	l.queue.push(c)
	l.queued.Add(1)
	lead := !l.leading
	l.leading = true
	l.mu.Unlock()
	if !lead {
		<-c.wake
		lead = c.lead
	}
	if lead {
		l.lead(c)
	}
	return c.err
}

// lead commits a group, of which own is the first, and hands on the lead.
func (l *Log) lead(own *waiter) {
	l.gather()
	size, err := l.take()
	if err == nil {
		err = l.write(size)
	}
	l.retire(own, err)
}

const (
	// gatherPatience is how many times in a row a leader yields in vain.
	gatherPatience = 3
	// gatherLimit is after what time it does not yield again.
	gatherLimit = 500 * time.Microsecond
)

// gather lets the commits that are about to come join the group: after a write,
// those who waited for it are just being woken. A lone commit is not delayed.
func (l *Log) gather() {
	n := l.queued.Load()
	if n >= l.herd {
		return
	}
	start := time.Now()
	for vain := 0; n < l.herd && vain < gatherPatience; vain++ {
		runtime.Gosched()
		m := l.queued.Load()
		if m > n {
			vain = -1
		}
		n = m
		if time.Since(start) > gatherLimit {
			return
		}
	}
}

// take moves what fits into one batch from the queue to the leader's group, and
// makes room for it. It returns the size of the batch without padding.
func (l *Log) take() (size int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// What does not fit behind the last batch has to fit into the next segment.
	limit := min(int64(len(l.buf)), l.used[len(l.used)-1].size)
	if l.stuck {
		limit = min(limit, l.header.small())
	}
	size = batchHeaderSize + int64(listSize(len(l.prev)))
	if size+l.queue.head.size > limit {
		l.prev, size = nil, batchHeaderSize
	}
	l.group = l.group[:0]
	for l.queue.head != nil && size+l.queue.head.size <= limit {
		c := l.queue.pop()
		size += c.size
		l.group = append(l.group, c)
	}
	l.queued.Add(-int64(len(l.group)))
	for len(l.synced) > 0 && size+recordSize(l.synced[0].path, 0) <= limit {
		size += recordSize(l.synced[0].path, 0)
		l.marks = append(l.marks, l.synced[0])
		l.synced = l.synced[1:]
	}
	if err := l.room(roundUp(size, block)); err != nil {
		l.synced, l.marks = append(l.marks, l.synced...), nil
		return 0, err
	}
	seg := l.used[len(l.used)-1]
	for _, c := range l.group {
		if len(c.frames) > 0 {
			seg.last[c.wal] = l.seq
			c.wal.last.Store(l.seq)
		}
	}
	return size, nil
}

// write encodes the group and writes it durably.
func (l *Log) write(size int64) error {
	l.mu.Lock()
	seg := l.used[len(l.used)-1]
	live := l.used[0].first
	l.mu.Unlock()
	p := l.buf[:roundUp(size, block)]
	h := batchHeader{
		id: l.header.id, generation: l.header.generation, seq: l.seq, live: live,
		off: seg.off + l.off, length: int(size) - batchHeaderSize, records: len(l.group) + len(l.marks), list: len(l.prev),
	}
	at := batchHeaderSize
	list := p[at : at+listSize(len(l.prev))]
	clear(list)
	for i, o := range l.prev {
		le.PutUint32(list[4*i:], o)
	}
	h.sums = crc32.Checksum(list, castagnoli)
	at += len(list)
	l.prev = l.prev[:0]
	for _, r := range l.marks {
		q := p[at : at+int(recordSize(r.path, 0))]
		clear(q)
		sum := r.encodeHeader(q, 0)
		le.PutUint32(q, sum)
		h.sums = addSum(h.sums, sum)
		at += len(q)
	}
	l.marks = l.marks[:0]
	for _, c := range l.group {
		if len(c.frames) > 0 {
			l.prev = append(l.prev, c.wal.owner)
		}
		end := at + int(c.size)
		at += copy(p[at:], c.head)
		at += copy(p[at:], c.frames)
		clear(p[at:end])
		at = end
		h.sums = addSum(h.sums, c.sum)
	}
	clear(p[at:])
	h.encode(p)
	if err := writeFull(l.file, p, h.off); err != nil {
		return err
	}
	if id, err := l.opts.FS.Lookup(l.path); err != nil || id != l.id {
		return errors.Join(ErrGone, err)
	}
	l.off += int64(len(p))
	l.seq++
	return nil
}

// retire wakes the group and hands on the lead. After a failure, or where there
// is no room, all who wait get the error, and sync their WALs.
func (l *Log) retire(own *waiter, err error) {
	l.mu.Lock()
	if err != nil {
		if err != errFull {
			l.fail(err)
			err = l.failed
		}
		for l.queue.head != nil {
			l.group = append(l.group, l.queue.pop())
			l.queued.Add(-1)
		}
	} else {
		l.stats.Batches++
		for _, c := range l.group {
			if len(c.frames) > 0 {
				l.stats.Commits++
			}
			l.stats.Bytes += uint64(len(c.frames))
		}
	}
	l.herd = int64(len(l.group)) + l.queued.Load()
	group := l.group
	next := l.queue.head
	if next == nil {
		// The group is the next leader's from here on.
		l.group = nil
		l.leading = false
		l.idle.Broadcast()
	}
	l.mu.Unlock()
	for i, c := range group {
		group[i] = nil
		c.err = err
		if c != own {
			c.wake <- struct{}{}
		}
	}
	if next != nil { // last, so that it finds those it should gather awake
		next.lead = true
		next.wake <- struct{}{}
	}
}

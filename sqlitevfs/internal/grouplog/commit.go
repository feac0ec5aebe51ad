// SPDX-License-Identifier: MIT

package grouplog

import (
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/sqlitevfs/internal/groupcommit"
)

// commit is one commit in the queue of a Log.
type commit struct {
	wal    *WAL
	head   []byte // header and path of the record, with its CRC
	frames []byte
	size   int64 // of the record in the batch
	sum    uint32
}

type (
	request = groupcommit.Request[commit]
	group   = groupcommit.Group[commit]
)

// forget keeps a request for the next commit, without references to the caller's memory.
func (l *Log) forget(r *request) {
	r.Value = commit{head: r.Value.head}
	l.queue.Free(r)
}

// refusal returns the reason why no commit may be queued. The caller holds the mutex.
func (l *Log) refusal() error {
	if l.closed {
		return &fs.PathError{Op: "commit", Path: l.path, Err: os.ErrClosed}
	}
	return l.failed
}

// submit queues a commit and returns when it is durable or failed.
func (l *Log) submit(r *request) error {
	l.mu.Lock()
	if err := l.refusal(); err != nil {
		l.mu.Unlock()
		return err
	}
	lead := l.queue.Add(r)
	l.mu.Unlock()
	if lead || l.queue.Wait(r) {
		l.lead(r)
	}
	return r.Err
}

// lead commits a group, of which own is the first, and passes the lead on.
func (l *Log) lead(own *request) {
	l.queue.Gather()
	var g group
	size, err := l.take(&g)
	if err == nil {
		err = l.write(&g, size)
	}
	l.retire(own, &g, err)
}

const (
	// These differ from the queue's defaults: SQLite has more to do between two commits than a
	// program between two appends.
	gatherMaxIdle = 3
	gatherMaxWait = 500 * time.Microsecond
)

// take moves the commits that fit into one batch from the queue to a group, and makes room for them
// in the log. It returns the size of the batch without padding.
func (l *Log) take(g *group) (size int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// A commit that does not fit after the last batch has to fit into the next segment.
	seg := l.used[len(l.used)-1]
	if most := min(maxBatch, seg.size); int64(len(l.buf)) < most {
		l.buf = sys.AlignedBytes(int(most), block)
	}
	limit := min(int64(len(l.buf)), seg.size)
	if l.cannotGrow {
		limit = min(limit, l.header.small())
	}
	size = batchHeaderSize + int64(listSize(len(l.prev)))
	if size+l.queue.First().Value.size > limit {
		l.prev, size = nil, batchHeaderSize
	}
	for r := l.queue.First(); r != nil && size+r.Value.size <= limit; r = l.queue.First() {
		size += r.Value.size
		l.queue.Take(g)
	}
	for len(l.synced) > 0 && size+recordSize(l.synced[0].path, 0) <= limit {
		size += recordSize(l.synced[0].path, 0)
		l.marks = append(l.marks, l.synced[0])
		l.synced = l.synced[1:]
	}
	if err := l.room(roundUp(size, block)); err != nil {
		l.synced, l.marks = append(l.marks, l.synced...), nil
		return 0, err
	}
	seg = l.used[len(l.used)-1]
	for r := g.First(); r != nil; r = r.Next() {
		if c := &r.Value; len(c.frames) > 0 {
			seg.last[c.wal] = l.seq
			c.wal.last.Store(l.seq)
		}
	}
	return size, nil
}

// write encodes the group and writes it durably.
func (l *Log) write(g *group, size int64) error {
	l.mu.Lock()
	seg := l.used[len(l.used)-1]
	live := l.used[0].first
	l.mu.Unlock()
	p := l.buf[:roundUp(size, block)]
	h := batchHeader{
		id: l.header.id, generation: l.header.generation, seq: l.seq, live: live,
		off: seg.off + l.off, length: int(size) - batchHeaderSize, records: g.Len() + len(l.marks), list: len(l.prev),
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
	for r := g.First(); r != nil; r = r.Next() {
		c := &r.Value
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

// retire wakes the group and passes the lead on. After a failure, or without room, all waiting
// commits get the error, and sync their WALs.
func (l *Log) retire(own *request, g *group, err error) {
	l.mu.Lock()
	if err != nil {
		if err != errFull {
			l.fail(err)
			err = l.failed
		}
		for l.queue.First() != nil {
			l.queue.Take(g)
		}
	} else {
		l.stats.Batches++
		for r := g.First(); r != nil; r = r.Next() {
			c := &r.Value
			if len(c.frames) > 0 {
				l.stats.Commits++
			}
			l.stats.Bytes += uint64(len(c.frames))
		}
	}
	next := l.queue.Pass(g.Len())
	if next.None() {
		l.idle.Broadcast()
	}
	l.mu.Unlock()
	groupcommit.Retire(own, *g, next, err)
}

// SPDX-License-Identifier: MIT

package replica

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"
)

// commit commits the transaction whose frames are in buf, for a connection of this node that
// holds the writer's lock. It returns nil when a majority has it and write has put the
// frames into the WAL. The index of the WAL had from commits when the transaction began. If the
// context of the call ends or the connection is ended before the result is known, it is unknown.
func (db *database) commit(k *conn, base int64, from uint32, buf []byte, last int64, write func([]byte) error) error {
	n, ctx := db.node, k.context()
	l := n.role.leader()
	if l == nil {
		return n.role.notLeader()
	}
	if err := db.lock(ctx, k.ended, l); err != nil {
		return err
	}
	err := db.load()
	switch {
	case err != nil:
	case db.ahead:
		err = errRecovering
	case len(db.deferred) > 0: // this node was deposed; the connection has read pages from before them
		err = ErrConflict
	case db.lacks.Load(): // the connection has read outdated pages
		err = &BrokenError{Database: db.name, Err: errLacks}
	case db.commits.Load() != 0 && db.commits.Load() != from:
		// SQLite could not enter the frames of the transaction before into the index.
		db.lacks.Store(true)
		db.fail(errLacks)
		err = db.broken
	}
	if err != nil {
		db.mu.Unlock()
		return err
	}
	size := int64(db.pageSize)
	frame := size + frameHeaderSize
	end := last - base + frame
	if end > int64(len(buf)) || end%frame != 0 {
		db.mu.Unlock()
		return fmt.Errorf("replica: a commit of %s ends within a frame: %d bytes were written, frames have %d", db.path, len(buf), frame)
	}
	frames := buf[:end]
	t := &txn{db: db.id, seq: db.pos.Seq, before: db.pos.Sum, pageSize: db.pageSize, pages: binary.BigEndian.Uint32(buf[last-base+4:])}
	db.collect(t, frames, frame)
	t.after = db.after(t)
	db.proposed = true
	db.writers.Add(1)
	db.mu.Unlock()
	defer db.writers.Add(-1) // without mu: write may wait for this connection's lock

	p := n.proposer.propose(opTxn, t.encode())
	p.txn = t
	n.proposer.enqueue(ctx, p)
	if bug := n.opts.bug; bug != nil && bug.acknowledgesEarly() {
		if err := write(frames); err != nil {
			return err
		}
		db.dirty.Store(true)
		return nil
	}
	err = n.proposer.await(ctx, k.ended, p, func() { db.doubt.Store(&doubt{p.id, l, p.begin}) })
	if err != nil {
		if bug := n.opts.bug; bug != nil && bug.keepsRefused() {
			_ = write(frames)
		}
		return err
	}
	// A majority has it, and the state machine has counted it.
	err = write(frames)
	defer db.owed.Store(false)
	if err != nil {
		err = fmt.Errorf("a committed transaction could not be written to %s: %w", db.path, err)
		return db.unwritten(err)
	}
	db.commits.Store(from + 1)
	db.dirty.Store(true)
	n.metrics.Commits.Add(1)
	return nil
}

// lock locks mu for a connection that holds the writer's lock, unless the connection is ended: apply
// holds mu while it waits for that lock, to write a transaction whose outcome was unknown. As long as that is
// unknown, lock waits too: a transaction proposed now would follow the open one and fail with ErrConflict.
func (db *database) lock(ctx context.Context, ended <-chan struct{}, l *leadership) error {
	for wait := 10 * time.Microsecond; ; wait = min(2*wait, 5*time.Millisecond) {
		d := db.doubt.Load()
		if d != nil && d.of != l {
			d = nil
		}
		if d == nil && db.mu.TryLock() {
			return nil
		}
		if d != nil && db.node.proposer.untilStalled(d.begin) <= 0 {
			return db.node.proposer.errStalled()
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return reason(ctx)
		case <-ended:
			if err := db.node.role.writable(); err != nil {
				return err
			}
			return ErrConflict
		}
	}
}

// unwritten is called when a transaction of a connection of this node was committed and the file
// lacks it. It returns the error for the caller.
func (db *database) unwritten(err error) error {
	db.lacks.Store(true)
	go func() { // apply may hold mu and wait for this connection's lock
		db.mu.Lock()
		defer db.mu.Unlock()
		db.fail(err)
	}()
	db.node.role.giveUp()
	return &UncertainError{Err: err}
}

// collect takes the pages of a transaction from its frames, and encodes how they change. If a
// page has several frames, the last one counts. The changes of unknown pages are in frames.
// db.mu is locked.
func (db *database) collect(t *txn, frames []byte, frame int64) {
	n := len(frames) / int(frame)
	index := make(map[uint32]int, n)
	latest := make([]int, 0, n)
	for i := range n {
		pgno := binary.BigEndian.Uint32(frames[int64(i)*frame:])
		if j, ok := index[pgno]; ok {
			latest[j] = i
			continue
		}
		index[pgno] = len(latest)
		latest = append(latest, i)
		t.pgnos = append(t.pgnos, pgno)
	}
	// Pages beyond the new size were written before a truncation.
	keep := 0
	for j, pgno := range t.pgnos {
		if pgno <= t.pages {
			t.pgnos[keep], latest[keep] = pgno, latest[j]
			keep++
		}
	}
	t.pgnos, latest = t.pgnos[:keep], latest[:keep]
	t.changes, t.sums = make([][]byte, keep), make([]uint64, keep)
	var buf []byte // the changes, one after the other
	for j, i := range latest {
		pgno, page := t.pgnos[j], frames[int64(i)*frame+frameHeaderSize:int64(i+1)*frame]
		t.sums[j] = pageSum(pgno, page)
		t.changes[j] = page
		if old := db.remembered(pgno); old != nil {
			begin := len(buf)
			buf = appendChange(buf, old, page)
			t.changes[j] = buf[begin:]
		}
		if keep <= db.recentLimit() {
			db.remember(pgno, t.sums[j], page, false)
		}
	}
}

// SPDX-License-Identifier: MIT

package replica

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// merge makes one transaction of some that follow one another, from their changes and from the
// pages that this node has. A page that several of them change is in it once. The caller holds
// the writer's lock, and db.mu is locked. The content is valid until the next transaction of the
// database.
func (db *database) merge(list []*txn) (*txn, error) {
	last := list[len(list)-1]
	m := &txn{seq: last.seq, before: list[0].before, after: last.after, pageSize: db.pageSize, pages: last.pages}
	places := make(map[uint32]int, len(last.pgnos))
	var own []bool // the content is the database's own
	for _, t := range list {
		for i, pgno := range t.pgnos {
			k, ok := places[pgno]
			if !ok {
				k = len(m.pgnos)
				places[pgno] = k
				m.pgnos, m.content, own = append(m.pgnos, pgno), append(m.content, nil), append(own, false)
			}
			change := t.changes[i]
			if len(change) == int(db.pageSize) {
				m.content[k], own[k] = change, false
				continue
			}
			if !own[k] {
				page, err := db.copyOf(pgno, m.content[k])
				if err != nil {
					return nil, err
				}
				m.content[k], own[k] = page, true
			}
			if err := applyChange(m.content[k], change); err != nil {
				return nil, err
			}
		}
	}
	m.sums = make([]uint64, len(m.pgnos))
	for k, pgno := range m.pgnos {
		m.sums[k] = pageSum(pgno, m.content[k])
		if len(m.pgnos) <= db.recentLimit() {
			db.remember(pgno, m.sums[k], m.content[k], own[k])
		}
	}
	if after := db.after(m); after != m.after {
		return nil, fmt.Errorf("the pages of %s differ from the leader's after transaction %d: their checksum is %016x instead of %016x", db.path, m.seq+1, after, m.after)
	}
	return m, nil
}

// copyOf returns a copy of a page's content, which is nil if it is that of the file.
func (db *database) copyOf(pgno uint32, content []byte) ([]byte, error) {
	if content != nil {
		return slices.Clone(content), nil
	}
	if page := db.remembered(pgno); page != nil {
		db.recent[pgno].page = nil // the caller changes it in place
		return page, nil
	}
	page := make([]byte, db.pageSize)
	return page, db.pages.read(pgno, page)
}

// backlogBytes bounds the kept transactions that arrive while a database is fetched.
const backlogBytes = 64 << 20

// apply applies transactions in the order of raft's log. Only the positions decide which
// transactions count, so all nodes decide alike.
func (db *database) apply(list []job) {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, j := range list {
		t := j.t
		switch {
		case db.gone:
			j.mine.finish(errDeleted)
			continue
		case t.seq < db.pos.Seq || t.pageSize != db.pageSize:
			j.mine.finish(ErrConflict)
			db.known(j.id)
			continue
		case t.seq != db.pos.Seq || t.before != db.pos.Sum:
			// The proposer had a state that this node never had, so this node's file is wrong.
			db.fail(fmt.Errorf("transaction %d of the log follows pages with the checksum %016x, and this node is at transaction %d with %016x", t.seq+1, t.before, db.pos.Seq, db.pos.Sum))
		}
		switch {
		case j.mine == nil:
			db.receive(t)
		case db.broken != nil:
			db.keep(t)
		default:
			db.count(j.mine.txn)
		}
		if j.mine != nil {
			db.proposed = false // its writer puts it into the file
			db.owed.Store(true)
		}
		db.node.changes.add(db.name, &change{db.id, db.pos.Index, j.at.Index, t.pages, t.pgnos})
		db.pos = Position{Term: j.at.Term, Index: j.at.Index, Seq: t.seq + 1, Sum: t.after}
		if db.ahead && db.target == t.after {
			db.ahead, db.due, db.unsure = false, 0, false
		}
		if db.due != 0 && db.pos.Seq >= db.due {
			db.due = 0
			if db.ahead {
				db.fail(fmt.Errorf("the fetched pages of %s differ: their checksum is %016x instead of %016x", db.path, db.target, db.pos.Sum))
			}
		}
		if j.mine != nil {
			j.mine.at = db.pos
			j.mine.finish(nil)
		}
		db.known(j.id)
	}
}

// receive takes a transaction that follows pos and that came from another node, or from a writer that
// has given up. A node that leads writes it into the file at once. Another one defers that until the
// database is read, or for Options.flushAfter, and writes a page once that several transactions
// change. A transaction that makes the database smaller is not written with those before it.
// db.mu is locked.
func (db *database) receive(t *txn) {
	if err := db.load(); err != nil {
		db.keep(t)
		return
	}
	if db.ahead {
		return // the file already has it
	}
	pages := len(db.sums)
	if n := len(db.deferred); n > 0 {
		pages = int(db.deferred[n-1].pages)
	}
	if int(t.pages) < pages && db.flush() != nil {
		return
	}
	db.deferred = append(db.deferred, t)
	db.deferredPages += len(t.pgnos)
	db.hasDeferred.Store(true)
	switch {
	case db.deferredPages > db.recentLimit(), db.node.role.prompt.Load():
		_ = db.flush()
	case !db.timed:
		db.timed = true
		time.AfterFunc(db.node.opts.flushAfter, func() {
			db.mu.Lock()
			defer db.mu.Unlock()
			db.timed = false
			_ = db.flush()
		})
	}
}

// readable writes the deferred transactions into the file, for a reader.
func (db *database) readable() error {
	if !db.hasDeferred.Load() {
		return nil
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.flush()
}

// redo tries to bring a file that cannot be used to the state of raft's log, by the
// transactions that the log still has. An example is a write that failed because the disk was
// full. db.mu is locked.
func (db *database) redo() error {
	if db.writers.Load() > 0 {
		return errors.New("a transaction is being committed")
	}
	if err := db.close(); err != nil {
		return err
	}
	total, err := db.scan()
	if err != nil {
		return err
	}
	if total != db.pos.Sum {
		list, err := db.node.store.transactions(db, db.pos.Index, db.pos.Seq)
		if err != nil {
			return err
		}
		from := len(list) - 1
		for ; from >= 0 && list[from].before != total; from-- {
		}
		if from < 0 {
			return fmt.Errorf("raft's log has no transaction that follows the state of the file, checksum %016x", total)
		}
		now := db.pos
		db.pos.Seq, db.pos.Sum = list[from].seq, total
		db.lacks.Store(false)
		for _, t := range list[from:] {
			if db.pos.Sum != t.before {
				err = fmt.Errorf("transaction %d of raft's log does not follow the one before it", t.seq+1)
			} else if err = db.write([]*txn{t}); err == nil {
				db.pos.Seq, db.pos.Sum = t.seq+1, t.after
			}
			if err != nil {
				break
			}
		}
		if err == nil && (db.pos.Seq != now.Seq || db.pos.Sum != now.Sum) {
			err = fmt.Errorf("the transactions of raft's log end at %d with the checksum %016x, and this node is at %d with %016x", db.pos.Seq, db.pos.Sum, now.Seq, now.Sum)
		}
		db.pos = now
		if err != nil {
			return err
		}
	}
	db.lacks.Store(false)
	db.loaded, db.broken = true, nil
	db.epoch.Add(1)
	db.dirty.Store(true)
	db.node.metrics.Redone.Add(1)
	db.node.log.Info("replica: a database is complete again", "database", db.name)
	return nil
}

// keep keeps a transaction for a file that is being fetched. db.mu is locked.
func (db *database) keep(t *txn) {
	if !db.fetching || db.spilled {
		return
	}
	c := *t
	c.content, c.sums, c.changes = nil, nil, slices.Clone(t.changes)
	for i, change := range c.changes {
		c.changes[i] = slices.Clone(change)
		db.backBytes += len(change)
	}
	if db.backBytes > backlogBytes {
		db.backlog, db.backBytes, db.spilled = nil, 0, true // raft's log has them
		return
	}
	db.backlog = append(db.backlog, &c)
}

// checkpointAfter is the number of frames after which the WAL is checkpointed.
const checkpointAfter = 1000

// write writes transactions, which follow one another and the state of the file, into the WAL under
// SQLite's locks. db.mu is locked.
func (db *database) write(list []*txn) error {
	if db.pages == nil {
		var err error
		if db.pages, err = openPages(db.keeperURI(), db.path, &db.node.opts.disk); err != nil {
			return err
		}
		db.node.openFiles.add(db)
	}
	f := db.pages
	for try := 0; ; try++ {
		ok, err := tryLock(f.shm, lockWrite)
		if err != nil {
			return err
		}
		if ok {
			break
		}
		if try > 20 {
			// A writing connection of this node is left from when the node led.
			db.node.sessions.evict(db)
		}
		if try == 5000 {
			return fmt.Errorf("another program holds the lock of %s", db.path)
		}
		time.Sleep(min(time.Duration(try)*100*time.Microsecond, 5*time.Millisecond))
	}
	db.commits.Store(0)
	err := errLacks
	if !db.lacks.Load() {
		err = db.enter(list)
	}
	if uerr := unlock(f.shm, lockWrite); err == nil {
		err = uerr
	}
	if err != nil {
		return err
	}
	db.dirty.Store(true)
	if h, _, err := f.header(); err == nil && h.frames >= checkpointAfter {
		// Readers may keep the checkpoint from completing; then the WAL keeps growing.
		err := f.keeper.Exec("PRAGMA wal_checkpoint(TRUNCATE)")
		if err != nil && !errors.Is(err, sqlite3.BUSY) {
			return err
		}
	}
	return nil
}

// enter enters transactions into the WAL as one. The caller holds the writer's lock, and db.mu is locked.
func (db *database) enter(list []*txn) error {
	m, err := db.merge(list)
	if err == nil {
		err = db.pages.write(m)
	}
	if err != nil {
		return err
	}
	db.count(m)
	if bug := db.node.opts.bug; bug == nil || !bug.appliesTwice() {
		return nil
	}
	if again := db.lastApplied; again != nil {
		_ = db.pages.write(again)
		db.count(again)
	}
	for i, page := range m.content {
		m.content[i] = slices.Clone(page)
	}
	db.lastApplied = m
	return nil
}

// light reports whether transactions are applied without access to files: the connections of their
// proposers write them, or they are deferred.
func (db *database) light(list []job) bool {
	if !slices.ContainsFunc(list, func(j job) bool { return j.mine == nil }) {
		return true
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.loaded && !db.node.role.prompt.Load()
}

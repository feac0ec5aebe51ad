// SPDX-License-Identifier: MIT

package replica

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// repairer fetches the databases whose files cannot be used.
type repairer struct {
	node  *Node
	queue chan repairJob
}

// fetchRequest requests a database with at least a number of transactions.
type fetchRequest struct {
	Database uint64 `json:"database"`
	Seq      uint64 `json:"seq"`
}

type fetchAnswer struct {
	Error    string   `json:"error,omitempty"`
	Deleted  bool     `json:"deleted,omitempty"` // the database was deleted, in raft's log
	Position Position `json:"position"`
	PageSize uint32   `json:"pageSize"`
	Pages    uint32   `json:"pages"`
}

func (w *wire) serveFetch(c net.Conn) {
	var r fetchRequest
	if receive(c, &r) != nil {
		return
	}
	ctx, cancel := context.WithTimeout(w.node.life.closing, 30*time.Second)
	defer cancel()
	f, m, pos, err := w.node.repairs.imageOf(ctx, r.Database, r.Seq)
	if err != nil {
		_ = send(c, fetchAnswer{Error: err.Error(), Deleted: w.node.catalog.isDeleted(r.Database)})
		return
	}
	defer func() { _ = errors.Join(m.done(), f.close()) }()
	if send(c, fetchAnswer{Position: pos, PageSize: m.pageSize, Pages: m.pages}) != nil {
		return
	}
	out := bufio.NewWriterSize(c, 256<<10)
	p := make([]byte, m.pageSize)
	for pgno := uint32(1); pgno <= m.pages; pgno++ {
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if m.read(pgno, p) != nil {
			return
		}
		if _, err := out.Write(p); err != nil {
			return
		}
	}
	_ = out.Flush()
}

// imageOf opens an image of a database with at least seq transactions, and returns its
// position.
func (rp *repairer) imageOf(ctx context.Context, id, seq uint64) (*pageFile, *image, Position, error) {
	db := rp.node.catalog.byID(id)
	for ; ; db = rp.node.catalog.byID(id) {
		if rp.node.catalog.isDeleted(id) {
			return nil, nil, Position{}, errDeleted
		}
		if db != nil {
			db.mu.Lock()
			at, err := db.filePosition(seq)
			db.mu.Unlock()
			if err != nil {
				return nil, nil, Position{}, err
			}
			if at.Seq >= seq {
				break
			}
		}
		select {
		case <-ctx.Done():
			return nil, nil, Position{}, fmt.Errorf("replica: this node has not yet applied the creation of database %d: %w", id, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
	f, err := openPages(db.keeperURI(), db.path, &rp.node.opts.disk)
	if err != nil {
		return nil, nil, Position{}, err
	}
	for {
		if _, _, err := f.header(); err != nil {
			return nil, nil, Position{}, errors.Join(err, f.close())
		}
		var locked bool
		db.mu.Lock()
		err := db.flush()
		if err == nil {
			locked, err = tryLock(f.shm, lockWrite)
		}
		// While the writer's lock is held, no transaction is in raft's log but not in the file. A writer
		// that waits for a majority may wait for the member that fetches the file.
		if err == nil && (locked || db.proposed) {
			var m *image
			var pos Position
			if pos, err = db.filePosition(seq); err == nil {
				m, err = f.image()
			}
			db.mu.Unlock()
			if locked {
				err = errors.Join(err, unlock(f.shm, lockWrite))
			}
			if err == nil {
				return f, m, pos, nil
			}
			return nil, nil, pos, errors.Join(err, f.close())
		}
		db.mu.Unlock()
		if err == nil {
			select {
			case <-ctx.Done():
				err = ctx.Err()
			case <-time.After(200 * time.Microsecond):
			}
		}
		if err != nil {
			return nil, nil, Position{}, errors.Join(err, f.close())
		}
	}
}

// differs has a database repaired whose pages, read from its files, have another checksum than its position.
// Another program has changed a file, or the disk has.
func (rp *repairer) differs(id, sum uint64, pos Position) {
	if db := rp.node.catalog.byID(id); db != nil {
		db.mu.Lock()
		defer db.mu.Unlock()
		db.fail(fmt.Errorf("the pages of %s differ: their checksum is %016x instead of %016x", db.path, sum, pos.Sum))
	}
}

// add has a database repaired. It may be called with db.mu locked.
func (rp *repairer) add(db *database) { rp.soon(repairJob{db, 20 * time.Millisecond}) }

// repairJob is a database to be repaired, and when to try again if that fails.
type repairJob struct {
	db   *database
	wait time.Duration
}

func (rp *repairer) soon(j repairJob) {
	select {
	case rp.queue <- j:
	default:
		rp.later(j, time.Second)
	}
}

func (rp *repairer) later(j repairJob, after time.Duration) {
	time.AfterFunc(after, func() {
		if rp.node.life.closing.Err() == nil {
			rp.soon(j)
		}
	})
}

// loop repairs databases. One that cannot be repaired yet does not delay others.
func (rp *repairer) loop() {
	for {
		select {
		case <-rp.node.life.closing.Done():
			return
		case j := <-rp.queue:
			err := rp.fetch(j.db)
			if err == nil || rp.node.life.closing.Err() != nil {
				continue
			}
			rp.node.log.Warn("replica: a database cannot be fetched yet", "database", j.db.name, "error", err)
			rp.later(repairJob{j.db, min(2*j.wait, 2*time.Second)}, j.wait)
		}
	}
}

// sources returns the members from which a database may be fetched, the leader first.
func (rp *repairer) sources() []peer {
	leader, id := rp.node.raft.LeaderWithID()
	var all []peer
	if leader != "" && string(leader) != rp.node.Address() {
		all = append(all, peer{string(id), string(leader)})
	}
	if f := rp.node.raft.GetConfiguration(); f.Error() == nil {
		for _, m := range f.Configuration().Servers {
			if m.Address != leader && string(m.ID) != rp.node.opts.ID {
				all = append(all, rp.node.wire.peerOf(m))
			}
		}
	}
	return all
}

// fetch repairs a database from raft's log if that suffices. Otherwise it replaces the file by
// that of another node.
func (rp *repairer) fetch(db *database) error {
	db.mu.Lock()
	if db.broken == nil || db.gone {
		db.mu.Unlock()
		return nil
	}
	if err := db.redo(); err == nil {
		db.mu.Unlock()
		return nil
	}
	db.fetching, db.spilled, db.backlog, db.backBytes = true, false, nil, 0
	seq := db.pos.Seq
	db.mu.Unlock()
	err := errors.New("the cluster has no other node")
	for _, source := range rp.sources() {
		if err = rp.fetchFrom(db, source, seq); err == nil {
			return nil
		}
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	db.fetching, db.backlog, db.backBytes = false, nil, 0
	return err
}

func (rp *repairer) fetchFrom(db *database, source peer, seq uint64) error {
	ctx, cancel := context.WithTimeout(rp.node.life.closing, 10*time.Second)
	defer cancel()
	c, err := rp.node.wire.dial(ctx, source, kindFetch)
	if err != nil {
		return err
	}
	defer c.Close()
	stop := context.AfterFunc(rp.node.life.closing, func() { _ = c.Close() })
	defer stop()
	if err := send(c, fetchRequest{db.id, seq}); err != nil {
		return err
	}
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	in := bufio.NewReaderSize(c, 256<<10)
	var a fetchAnswer
	if err := receive(in, &a); err != nil {
		return err
	}
	if a.Deleted {
		db.mu.Lock()
		db.obsolete = true
		db.mu.Unlock()
	}
	if a.Error != "" {
		return fmt.Errorf("%s answered: %s", source.address, a.Error)
	}
	if a.PageSize != db.pageSize {
		return fmt.Errorf("%s has pages of %d bytes, and this node of %d", source.address, a.PageSize, db.pageSize)
	}
	if err := db.makeRoom(); err != nil {
		return err
	}
	tmp := db.path + ".new"
	f, err := os.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(tmp)
	var sum uint64
	out := bufio.NewWriterSize(f, 256<<10)
	p := make([]byte, a.PageSize)
	for pgno := uint32(1); pgno <= a.Pages && err == nil; pgno++ {
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err = io.ReadFull(in, p); err == nil {
			sum ^= pageSum(pgno, p)
			_, err = out.Write(p)
		}
	}
	if err == nil {
		err = out.Flush()
	}
	if err == nil {
		err = rp.node.opts.disk.sync(tmp, f.Sync)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if sum != a.Position.Sum {
		return fmt.Errorf("%s sent pages with the checksum %016x instead of %016x", source.address, sum, a.Position.Sum)
	}
	return db.install(tmp, a.Position)
}

// makeRoom prepares the directory for the file, unless the database was deleted: another one may have a part
// of its path since.
func (db *database) makeRoom() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.gone {
		return errDeleted
	}
	if err := db.node.catalog.clearWay(db); err != nil {
		return err
	}
	return db.node.opts.disk.mkdirAll(filepath.Dir(db.path))
}

// install replaces the file of a database by a fetched one.
func (db *database) install(tmp string, pos Position) error {
	n := db.node
	n.openFiles.remove(db)
	db.epoch.Add(1)
	n.sessions.evict(db)
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.gone {
		return errDeleted
	}
	if writers := db.writers.Load(); writers > 0 {
		return fmt.Errorf("%d transactions of this node are being committed: the fetch begins again", writers)
	}
	if pos.Seq < db.pos.Seq && !db.spilled && (len(db.backlog) == 0 || db.backlog[0].seq > pos.Seq) {
		return fmt.Errorf("the other node is at transaction %d, and this node at %d", pos.Seq, db.pos.Seq)
	}
	if err := db.close(); err != nil {
		return err
	}
	if err := removeBeside(db.path); err != nil {
		return err
	}
	// After a power cut the new file must not have the WAL of the old one.
	if err := n.opts.disk.syncFile(filepath.Dir(db.path)); err != nil {
		return err
	}
	if err := n.opts.disk.rename(tmp, db.path); err != nil {
		return err
	}
	if db.spilled && pos.Seq < db.pos.Seq {
		// Raft's log has what was committed meanwhile: it is not cut while a database is not whole.
		db.fetching, db.spilled = false, false
		db.epoch.Add(1)
		return db.redo()
	}
	backlog := db.backlog
	db.fetching, db.spilled, db.backlog, db.backBytes = false, false, nil, 0
	total, err := db.scan()
	if err != nil {
		return err
	}
	db.loaded, db.broken, db.ahead, db.due = true, nil, false, 0
	db.lacks.Store(false)
	now := db.pos
	if total != pos.Sum {
		db.broken = &BrokenError{db.name, fmt.Errorf("the fetched file has the checksum %016x instead of %016x", total, pos.Sum)}
		return db.broken
	}
	db.epoch.Add(1)
	switch {
	case pos.Seq > now.Seq: // raft's log will replay transactions that the file already has
		db.ahead, db.target, db.due = true, pos.Sum, pos.Seq
	default:
		db.pos.Seq, db.pos.Sum = pos.Seq, pos.Sum
		for _, t := range backlog {
			if t.seq >= pos.Seq && t.before == db.pos.Sum && db.broken == nil {
				db.receive(t)
				db.pos.Seq, db.pos.Sum = t.seq+1, t.after
			}
		}
		at := db.pos
		wrong := at.Seq != now.Seq || at.Sum != now.Sum
		db.pos = now
		if wrong && db.broken == nil {
			db.broken = &BrokenError{db.name, fmt.Errorf("the fetched file and the %d transactions after it end at transaction %d with the checksum %016x, and raft's log at %d with %016x", len(backlog), at.Seq, at.Sum, now.Seq, now.Sum)}
		}
		if db.broken != nil {
			return db.broken
		}
	}
	db.dirty.Store(true)
	n.metrics.Fetched.Add(1)
	n.log.Info("replica: a database was fetched", "database", db.name, "transactions", pos.Seq)
	return nil
}

// fetchAll fetches the databases that this node does not have in the state of a snapshot, whose last entry
// has an index. It returns when it has all of them, and reports that: raft then assumes that this node has the snapshot.
//
// Without a usable leader it returns earlier, and the fetches go on. Raft casts no vote and acknowledges no entry
// before fetchAll returns, and the other members may need either. A member that has the entries of the snapshot in its
// log may not know that they are committed. It learns that when it leads and a majority has acknowledged an
// entry of its own term. Only then does it apply them, and can give the files.
//
// No commit is lost by that. A leader sends a snapshot only to a member that lacks entries of it, so the majority that
// acknowledged the last one of them is without this node, and has them all in files or logs. Later entries, which this
// node acknowledges without the files, stay in its log until it has them, see fsm.Snapshot. They are of use together
// with the state that another member has: until the files are there, this node cannot stand in for such a member. So
// fetchAll does not return early only because a fetch is slow.
func (rp *repairer) fetchAll(dbs map[string]*database, index uint64) (whole bool, err error) {
	ctx, stop := context.WithCancel(rp.node.life.closing)
	defer stop()
	lost := make(chan struct{})
	rp.node.life.over.Go(func() {
		if rp.losesLeader(ctx, index) {
			close(lost)
		}
	})
	var lacking atomic.Bool
	var wg sync.WaitGroup
	slots := make(chan struct{}, 4)
	for _, db := range dbs {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if !rp.ensure(db, lost) {
				lacking.Store(true)
			}
		})
	}
	wg.Wait()
	return !lacking.Load(), rp.node.life.closing.Err()
}

// losesLeader returns true when there was no usable leader for four times Options.Election, and false when ctx is done.
func (rp *repairer) losesLeader(ctx context.Context, index uint64) bool {
	election := rp.node.opts.Election
	for usable := time.Now(); time.Since(usable) <= 4*election; {
		if rp.leaderHas(ctx, index) {
			usable = time.Now()
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(election / 4):
		}
	}
	return true
}

// leaderHas reports whether a leader, which sends heartbeats and answers, has applied an entry.
func (rp *repairer) leaderHas(ctx context.Context, index uint64) bool {
	address, id := rp.node.raft.LeaderWithID()
	if id == "" || time.Since(rp.node.raft.LastContact()) > rp.node.opts.Election {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, rp.node.opts.Election)
	defer cancel()
	has, err := rp.node.wire.progress(ctx, raft.Server{ID: id, Address: address})
	return err == nil && has >= index
}

// ensure waits until a database is complete on this node, and reports that, or until lost is closed. It does not wait
// for one that was deleted after the snapshot: raft brings the deletion when it has the snapshot.
func (rp *repairer) ensure(db *database, lost <-chan struct{}) bool {
	db.mu.Lock()
	_ = db.load() // a file with another state is fetched
	db.mu.Unlock()
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		db.mu.Lock()
		done := db.broken == nil || db.gone || db.obsolete
		db.mu.Unlock()
		if done {
			return true
		}
		select {
		case <-time.After(wait):
		case <-lost:
			return false
		case <-rp.node.life.closing.Done():
			return false
		}
	}
}

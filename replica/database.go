// SPDX-License-Identifier: MIT

package replica

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/ncruces/go-sqlite3"
)

// Position is a state of a database: the entry of raft's log that made it, the number of
// transactions, and the checksum of all pages.
type Position struct {
	Term  uint64 `json:"term"`
	Index uint64 `json:"index"`
	Seq   uint64 `json:"seq"`
	Sum   uint64 `json:"sum"`
}

// String returns the term and the index, the number of transactions, and the checksum.
func (p Position) String() string {
	return fmt.Sprintf("%d.%d (transaction %d, pages %016x)", p.Term, p.Index, p.Seq, p.Sum)
}

// database is a database on this node.
type database struct {
	node       *Node
	id         uint64
	name, path string
	uri        string

	dirty atomic.Bool   // changed since the files were synced for a snapshot
	epoch atomic.Uint64 // raised when the file was replaced: connections to the old one end

	writers atomic.Int32 // transactions of this node that are being committed; incremented with mu locked
	lacks   atomic.Bool  // the file lacks a transaction that was committed
	owed    atomic.Bool  // a transaction of this node was counted, and its writer has not put it into the file
	// The last transaction of this node whose writer did not wait for its outcome; nil if that is known.
	doubt atomic.Pointer[doubt]
	// The number of commits that the index of the WAL has after the last commit of a connection of
	// this node; 0 if it is not known. It is used with the writer's lock.
	commits atomic.Uint32

	mu       sync.Mutex
	pos      Position // according to raft's log
	pageSize uint32
	gone     bool // it was deleted
	obsolete bool // another node has applied its deletion, and this node has not yet
	// A transaction of this node was proposed, and none of its own was counted since. The file then has
	// the state of pos, although its writer holds the lock.
	proposed bool
	// The file. Once it is loaded and neither ahead nor broken, it is at pos, but for the deferred transactions.
	loaded bool
	missed bool      // it came with another node's snapshot: if the file is old, that is no damage
	unsure bool      // the process ended while it fetched the files of such a snapshot; until the file is known
	ahead  bool      // the file has transactions that raft's log has yet to replay
	target uint64    // sum of the file that is ahead
	due    uint64    // if the file was fetched: the transactions that it has; else 0
	broken error     // why the file cannot be used; it is being fetched
	sums   []uint64  // of the file's pages
	pages  *pageFile // nil until a transaction of another node is applied
	recent map[uint32]*recentPage
	// The transactions that were applied and that the file does not have yet, see receive.
	deferred      []*txn
	deferredPages int         // the number of their changes of pages
	timed         bool        // they are flushed soon
	hasDeferred   atomic.Bool // changed with mu locked
	// The transactions that are applied while the file is fetched.
	backlog     []*txn
	backBytes   int
	fetching    bool
	spilled     bool // the backlog was too large
	lastApplied *txn // set only for bugApplyTwice
}

// doubt is a transaction that was proposed under a leadership, and is in raft's log before all later ones.
type doubt struct {
	id    proposalID
	of    *leadership
	begin time.Time // when it was proposed
}

func (n *Node) newDatabase(id uint64, name string, pageSize uint32, pos Position) *database {
	db := &database{node: n, id: id, name: name, path: filepath.Join(n.data, filepath.FromSlash(name)), pos: pos, pageSize: pageSize}
	db.uri = (&url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(db.path)}).String()
	return db
}

func (db *database) keeperURI() string {
	return db.uri + "?vfs=" + db.node.vfsName + "&" + paramRole + "=" + roleKeeper
}

// load reads the whole file once, for the checksums of its pages. db.mu is locked.
func (db *database) load() error {
	switch {
	case db.gone:
		return errDeleted
	case db.broken != nil:
		return db.broken
	case db.loaded:
		return nil
	case db.node.closing.Err() != nil:
		return net.ErrClosed
	}
	total, err := db.scan()
	if db.missed {
		db.missed = false
		if err != nil || total != db.pos.Sum {
			db.lacksSnapshot()
			return db.broken
		}
	}
	if err != nil {
		db.fail(err)
		return db.broken
	}
	db.loaded = true
	if db.unsure = db.unsure && total != db.pos.Sum; total != db.pos.Sum {
		if db.node.recovered.Load() && (db.due == 0 || total != db.target) {
			db.fail(fmt.Errorf("the pages of %s differ: their checksum is %016x instead of %016x", db.path, total, db.pos.Sum))
			return db.broken
		}
		db.ahead, db.target = true, total
	}
	return nil
}

// scan reads the checksums of the file's pages.
func (db *database) scan() (total uint64, err error) {
	if db.pages == nil {
		if db.pages, err = openPages(db.keeperURI(), db.path, &db.node.opts.disk); err != nil {
			return 0, err
		}
		db.node.opened(db)
	}
	m, err := db.pages.image()
	if err != nil {
		return 0, err
	}
	db.sums, total, err = m.sums()
	if err == nil && m.pageSize != db.pageSize {
		err = fmt.Errorf("%s has pages of %d bytes instead of %d", db.path, m.pageSize, db.pageSize)
	}
	return total, errors.Join(err, m.done())
}

// close closes the files that are not needed while the database is idle. db.mu is locked.
func (db *database) close() error {
	if db.pages == nil || db.writers.Load() > 0 {
		return nil
	}
	_ = db.flush() // raft's log has what cannot be written
	err := db.pages.close()
	db.pages, db.loaded, db.sums, db.recent, db.deferred = nil, false, nil, nil, nil
	db.commits.Store(0)
	if db.ahead {
		db.ahead = false // load sets it again
	}
	return err
}

// fail stops the use of the file and fetches it from another node. db.mu is locked.
func (db *database) fail(err error) {
	if db.broken != nil || db.gone {
		return
	}
	if db.unsure {
		db.unsure = false
		db.lacksSnapshot()
		return
	}
	if e, ok := errors.AsType[*sqlite3.Error](err); ok {
		err = fmt.Errorf("%w (SQLite's code %d)", err, e.ExtendedCode())
	}
	db.node.log.Error("replica: a database is not served until it is fetched again", "database", db.name, "error", err)
	db.node.metrics.Broken.Add(1)
	db.stopServing(err)
}

// lacksSnapshot fetches the file, which is older than the snapshot that this node has. db.mu is locked.
func (db *database) lacksSnapshot() {
	db.node.log.Info("replica: fetching a database", "database", db.name)
	db.stopServing(errors.New("this node does not have the state of the snapshot yet"))
}

// stopServing ends the connections to the file and has it repaired. db.mu is locked.
func (db *database) stopServing(err error) {
	db.broken = &BrokenError{Database: db.name, Err: err}
	db.forget()
	db.epoch.Add(1)
	db.node.repair(db)
}

// usable returns the epoch of the database, or an error if connections may not use it.
func (db *database) usable() (uint64, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if err := db.load(); err != nil {
		return 0, err
	}
	if db.ahead {
		return 0, fmt.Errorf("replica: %s: %w", db.name, errRecovering)
	}
	return db.epoch.Load(), nil
}

// filePosition returns the position of the file, if that has at least seq transactions, counting
// those that are deferred. After a
// restart the file may be ahead of what this node knows to be committed. Raft's log then has
// the transaction that it ends with. Members that have to fetch the file must get it, because
// without them there may be no majority that commits anything. db.mu is locked.
func (db *database) filePosition(seq uint64) (Position, error) {
	if err := db.load(); err != nil {
		return Position{}, err
	}
	p := db.pos
	switch {
	case !db.ahead:
		return p, nil
	case db.due != 0:
		p.Seq, p.Sum = db.due, db.target
		return p, nil
	}
	last, err := db.node.store.LastIndex()
	if err != nil {
		return Position{}, err
	}
	list, err := db.node.logged(db, last, math.MaxUint64)
	if err != nil {
		return Position{}, err
	}
	i := slices.IndexFunc(list, func(t *txn) bool { return t.after == db.target && t.seq+1 >= max(seq, p.Seq) })
	if i < 0 {
		return Position{}, errRecovering
	}
	p.Seq, p.Sum = list[i].seq+1, db.target
	return p, nil
}

// resume moves the database to its position in a snapshot of another node, and reports whether
// that is possible without a fetch: the file has the state of the snapshot or a later one, from
// transactions that the log will bring again. An example is a snapshot that raft sends again
// because the first one was not answered in time; the files were fetched for the first one, and
// are newer than the snapshot.
func (db *database) resume(s databaseState) bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.gone || db.broken != nil || db.lacks.Load() || db.writers.Load() > 0 || db.name != s.Name || db.pageSize != s.PageSize || db.flush() != nil {
		return false
	}
	seq, sum := db.pos.Seq, db.pos.Sum // of the file
	switch {
	case db.due != 0:
		seq, sum = db.due, db.target
	case db.ahead, !db.loaded && !db.node.recovered.Load():
		return false // not known
	}
	if seq < s.Position.Seq || seq == s.Position.Seq && sum != s.Position.Sum {
		return false
	}
	db.pos, db.ahead, db.due = s.Position, false, 0
	if seq > s.Position.Seq {
		db.ahead, db.target, db.due = db.loaded, sum, seq
	}
	return true
}

// settle fails a file that is still ahead of the log after the log has replayed all
// transactions that the file may have.
func (db *database) settle() {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.ahead && db.due == 0 {
		db.fail(fmt.Errorf("the pages of %s differ: their checksum is %016x instead of %016x", db.path, db.target, db.pos.Sum))
	}
}

// commit commits the transaction whose frames are in buf, for a connection of this node that
// holds the writer's lock. It returns nil when a majority has it and write has put the
// frames into the WAL. The index of the WAL had from commits when the transaction began. If the
// context of the call ends or the connection is ended before the result is known, it is unknown.
func (db *database) commit(k *conn, base int64, from uint32, buf []byte, last int64, write func([]byte) error) error {
	n, ctx := db.node, k.context()
	l := n.leader()
	if l == nil {
		return n.notLeader()
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

	p := n.propose(opTxn, t.encode())
	p.txn = t
	n.enqueue(ctx, p)
	if n.bug == bugEarlyAck {
		if err := write(frames); err != nil {
			return err
		}
		db.dirty.Store(true)
		return nil
	}
	err = n.await(ctx, k.ended, p, func() { db.doubt.Store(&doubt{p.id, l, p.begin}) })
	if err != nil {
		if n.bug == bugApplyRefused {
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
// unknown, lock waits too: if the connection's transaction were committed, then after that one, in vain.
func (db *database) lock(ctx context.Context, ended <-chan struct{}, l *leadership) error {
	for wait := 10 * time.Microsecond; ; wait = min(2*wait, 5*time.Millisecond) {
		d := db.doubt.Load()
		if d != nil && d.of != l {
			d = nil
		}
		if d == nil && db.mu.TryLock() {
			return nil
		}
		if d != nil && db.node.untilStalled(d.begin) <= 0 {
			return db.node.errStalled()
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return reason(ctx)
		case <-ended:
			if err := db.node.writable(); err != nil {
				return err
			}
			return ErrConflict
		}
	}
}

// known ends the doubt about a transaction.
func (db *database) known(id proposalID) {
	if d := db.doubt.Load(); d != nil && d.id == id {
		db.doubt.CompareAndSwap(d, nil)
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
	db.node.giveUp()
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

// recentPage is the content of a page, for the next transaction that changes it. It counts if
// its sum is the one that the database has for the page, so it needs not be removed when a
// transaction fails.
type recentPage struct {
	sum  uint64
	page []byte
}

// recentBytes bounds the recent pages of a database.
const recentBytes = 256 << 10

func (db *database) recentLimit() int { return recentBytes / int(db.pageSize) }

// remembered returns the content of a page, nil if it is not known. db.mu is locked.
func (db *database) remembered(pgno uint32) []byte {
	r := db.recent[pgno]
	if r == nil || int(pgno) > len(db.sums) || r.sum != db.sums[pgno-1] {
		return nil
	}
	return r.page
}

// remember keeps the content of a page: the slice itself if it is the database's own, otherwise a
// copy. db.mu is locked.
func (db *database) remember(pgno uint32, sum uint64, page []byte, own bool) {
	r := db.recent[pgno]
	if r == nil {
		if db.recent == nil {
			db.recent = make(map[uint32]*recentPage)
		}
		if len(db.recent) >= db.recentLimit() {
			for any := range db.recent {
				delete(db.recent, any)
				break
			}
		}
		r = new(recentPage)
		db.recent[pgno] = r
	}
	if r.sum = sum; own {
		r.page = page
	} else {
		r.page = append(r.page[:0], page...)
	}
}

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

// after returns the sum of the database after a transaction, computed from the pages that
// this node has. t.before is the sum of the file. db.mu is locked.
func (db *database) after(t *txn) uint64 {
	sum := t.before
	for i, pgno := range t.pgnos {
		if int(pgno) <= len(db.sums) {
			sum ^= db.sums[pgno-1]
		}
		sum ^= t.sums[i]
	}
	for pgno := int(t.pages); pgno < len(db.sums); pgno++ {
		sum ^= db.sums[pgno] // cut off
	}
	for _, pgno := range t.skipped(len(db.sums)) {
		sum ^= pageSum(pgno, make([]byte, db.pageSize))
	}
	return sum
}

// skipped returns the pages that the database gains but the transaction does not write: the
// page of SQLite's locks. They are zeros.
func (t *txn) skipped(pages int) (skipped []uint32) {
	if int(t.pages) <= pages {
		return nil
	}
	written := make([]bool, int(t.pages)-pages)
	for _, pgno := range t.pgnos {
		if int(pgno) > pages && pgno <= t.pages {
			written[int(pgno)-pages-1] = true
		}
	}
	for i, w := range written {
		if !w {
			skipped = append(skipped, uint32(pages+i)+1)
		}
	}
	return skipped
}

// count enters the checksums of a transaction's pages. db.mu is locked.
func (db *database) count(t *txn) {
	skipped := t.skipped(len(db.sums))
	for len(db.sums) < int(t.pages) {
		db.sums = append(db.sums, 0)
	}
	db.sums = db.sums[:t.pages]
	for _, pgno := range skipped {
		db.sums[pgno-1] = pageSum(pgno, make([]byte, db.pageSize))
	}
	for i, pgno := range t.pgnos {
		db.sums[pgno-1] = t.sums[i]
	}
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
	case db.deferredPages > db.recentLimit(), db.node.prompt.Load():
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

// flush writes the deferred transactions into the file. If that fails, the file is repaired. db.mu is
// locked.
func (db *database) flush() error {
	if len(db.deferred) == 0 {
		return nil
	}
	defer db.forget() // last: readers who find nothing deferred do not wait
	if db.gone {
		return errDeleted
	}
	if err := db.write(db.deferred); err != nil {
		db.fail(err)
		return db.broken
	}
	db.node.metrics.Applied.Add(uint64(len(db.deferred)))
	return nil
}

// forget drops the deferred transactions: the file has them, or will have them when it is repaired.
// db.mu is locked.
func (db *database) forget() {
	clear(db.deferred)
	db.deferred, db.deferredPages = db.deferred[:0], 0
	db.hasDeferred.Store(false)
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
		list, err := db.node.logged(db, db.pos.Index, db.pos.Seq)
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

// logged returns the transactions of a database before seq that raft's log has up to the index
// last. db.mu is locked.
func (n *Node) logged(db *database, last, seq uint64) ([]*txn, error) {
	first, err := n.store.FirstIndex()
	if err != nil || first == 0 {
		return nil, err
	}
	var list []*txn
	for i := first; i <= last; i++ {
		var l raft.Log
		if err := n.store.GetLog(i, &l); err != nil {
			return nil, err
		}
		for data := l.Data; l.Type == raft.LogCommand && len(data) > 0; {
			o, tail, err := nextOp(data)
			if err != nil {
				return nil, err
			}
			data = tail
			if o.kind != opTxn || len(o.rest) < 8 || binary.LittleEndian.Uint64(o.rest) != db.id {
				continue
			}
			t, err := decodeTxn(o.rest)
			if err != nil {
				return nil, err
			}
			// The first of several with the same number counts, see apply.
			if k := len(list); (k == 0 || t.seq > list[k-1].seq) && t.seq < seq {
				list = append(list, t)
			}
		}
	}
	return list, nil
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
		db.node.opened(db)
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
			db.node.evict(db)
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
	if db.node.bug != bugApplyTwice {
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

// The errors of writes and of databases.
var (
	// ErrUncertain is matched by the error of a transaction whose outcome is unknown. The
	// transaction is later complete on all nodes, or on none.
	ErrUncertain = errors.New("replica: it is not known whether the transaction was committed")
	// ErrConflict is returned for a transaction that was rolled back because another one,
	// whose outcome was unknown, was committed before it. The transaction can be repeated.
	ErrConflict = errors.New("replica: another transaction was committed before this one; repeat it")

	errEnded      = errors.New("the node has ended the connection")
	errLacks      = errors.New("the file lacks a transaction that was committed")
	errDeleted    = fmt.Errorf("replica: the database was deleted: %w", os.ErrNotExist)
	errRecovering = errors.New("the node has not caught up with the log since its start")
)

// UncertainError wraps ErrUncertain and the reason.
type UncertainError struct{ Err error }

// Error returns the text of ErrUncertain and the reason.
func (e *UncertainError) Error() string { return ErrUncertain.Error() + ": " + e.Err.Error() }

// Unwrap returns ErrUncertain and the reason.
func (e *UncertainError) Unwrap() []error { return []error{ErrUncertain, e.Err} }

// BrokenError reports a database whose file on this node is missing or differs from the
// other nodes'. This node does not serve the database until it has fetched the file from
// another node.
type BrokenError struct {
	Database string
	Err      error
}

// Error returns the name of the database and the reason.
func (e *BrokenError) Error() string {
	return fmt.Sprintf("replica: %s is not served by this node until it is fetched again: %v", e.Database, e.Err)
}

// Unwrap returns the reason.
func (e *BrokenError) Unwrap() error { return e.Err }

// proposal is an operation that was passed to raft and has no result yet.
type proposal struct {
	id    proposalID
	begin time.Time
	op    []byte
	txn   *txn
	at    Position
	done  chan error
}

// finish gives the result to the proposer. A nil proposal has no proposer on this node.
func (p *proposal) finish(err error) {
	if p != nil {
		p.done <- err
	}
}

// left is called when the outcome of a proposal is known after its proposer may have left.
func (n *Node) left(p *proposal) {
	if p.txn == nil {
		return
	}
	if db := n.byID(p.txn.db); db != nil {
		db.known(p.id)
	}
}

// await waits for the result of a proposal, until ctx or the caller's connection ends, or commits stall; a nil
// channel never ends. It calls leave before it returns without the result.
func (n *Node) await(ctx context.Context, ended <-chan struct{}, p *proposal, leave func()) (err error) {
	defer func() {
		if errors.Is(err, ErrUncertain) {
			n.metrics.Uncertain.Add(1)
		}
	}()
	select {
	case err := <-p.done:
		return err
	default:
	}
	s := n.newStall(p.begin)
	defer s.timer.Stop()
	for err == nil {
		select {
		case err := <-p.done:
			return err
		case <-ctx.Done():
			err = reason(ctx)
		case <-ended:
			err = errEnded
		case <-s.timer.C:
			err = s.over()
		}
	}
	leave()
	if n.claim(p.id) == nil {
		err = <-p.done // the result is on its way
		n.left(p)
		return err
	}
	return &UncertainError{Err: err}
}

// reason returns why a context is done, which a firstRow hides from SQLite.
func reason(ctx context.Context) error {
	if f, ok := ctx.(*firstRow); ok {
		ctx = f.Context
	}
	return ctx.Err()
}

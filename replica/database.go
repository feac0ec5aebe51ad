// SPDX-License-Identifier: MIT

package replica

import (
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

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

func (db *database) keeperURI() string {
	return db.uri + "?vfs=" + db.node.catalog.vfsName + "&" + paramRole + "=" + roleKeeper
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
	case db.node.life.closing.Err() != nil:
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
		if db.node.progress.recovered.Load() && (db.due == 0 || total != db.target) {
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
		db.node.openFiles.add(db)
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
	db.node.repairs.add(db)
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
	list, err := db.node.store.transactions(db, last, math.MaxUint64)
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
	case db.ahead, !db.loaded && !db.node.progress.recovered.Load():
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

// doubt is a transaction that was proposed under a leadership, and is in raft's log before all later ones.
type doubt struct {
	id    proposalID
	of    *leadership
	begin time.Time // when it was proposed
}

// known ends the doubt about a transaction.
func (db *database) known(id proposalID) {
	if d := db.doubt.Load(); d != nil && d.id == id {
		db.doubt.CompareAndSwap(d, nil)
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

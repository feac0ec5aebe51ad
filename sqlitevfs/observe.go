// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ncruces/go-sqlite3/vfs"
)

// Observer is told which databases are opened. It returns nil for a database that it does not observe. A path is
// absolute, as SQLite resolved it. Observe of package sqlitevfs may call it for several databases at a time.
type Observer func(path string) Observed

// Observed is told what this process does to one database, from the opening of its first connection to the end of its
// last one. The calls come from the goroutines of connections, which hold SQLite's locks and wait for their return: a
// method must not use the database, and must return soon. Other processes' commits are not seen.
type Observed interface {
	// Changing is called before the database file is written: for each page by a checkpoint of the WAL, or by a
	// transaction of a rollback mode.
	Changing(checkpoint bool)
	// Committed is called after a commit of a WAL. The commit is durable; with synchronous NORMAL or OFF it is
	// written. The frame that ends it begins at this offset of the WAL. With locking_mode EXCLUSIVE and NORMAL or OFF
	// it is called by a timer, within a second or at the next commit: SQLite shows no end of such a commit.
	Committed(frame int64)
	// Restarting is called before the committed frames of the WAL are overwritten or removed. All of them are in the
	// database file. removed reports that the next WAL is a new file.
	Restarting(removed bool)
	// Changed is called when a transaction of a rollback mode has ended, by a commit or a rollback. Until it returns
	// no other transaction writes. The pieces of the file that it wrote may overlap; nil means too many pieces.
	Changed(written []Piece)
	// Closed is called when the last connection has been closed.
	Closed()
}

// Piece is a part of a file.
type Piece struct{ Off, Len int64 }

// maxPieces is how many pieces of a transaction are remembered. Adjacent writes are one piece.
const maxPieces = 64 << 10

var observing struct {
	mu  sync.Mutex // of Observe and stop
	now atomic.Pointer[Observer]
}

// ErrObserved is returned by Observe if there is an observer.
var ErrObserved = errors.New("sqlitevfs: the databases of this process have an observer: stop it first")

// Observe tells an observer about the databases of all VFSes of this package, also about those that are open. There is
// one observer at a time. stop ends it for databases that are opened later; its result of a database that is
// open is told until that is closed.
func Observe(o Observer) (stop func(), err error) {
	observing.mu.Lock()
	defer observing.mu.Unlock()
	if !observing.now.CompareAndSwap(nil, &o) {
		return nil, ErrObserved
	}
	known.each(func(v *ringVFS) {
		open, _ := v.dbs.snapshot()
		for _, db := range open {
			db.observe()
		}
	})
	return func() { observing.now.CompareAndSwap(&o, nil) }, nil
}

// observation is the observer's part of a database.
type observation struct {
	once sync.Once
	who  atomic.Pointer[Observed]

	mu      sync.Mutex
	written []Piece // by the transaction of a rollback mode
	many    bool    // more than maxPieces
	pending atomic.Bool
}

// observe asks the observer about the database, once.
func (d *database) observe() {
	o := observing.now.Load()
	if o == nil {
		return
	}
	d.seen.once.Do(func() {
		if who := (*o)(d.path); who != nil {
			d.seen.who.Store(&who)
		}
	})
}

// observer returns who observes the database, or nil. d may be nil.
func (d *database) observer() Observed {
	if d == nil {
		return nil
	}
	if who := d.seen.who.Load(); who != nil {
		return *who
	}
	return nil
}

// changing is called before the database file is written.
func (f *file) changing(p Piece) {
	who := f.db.observer()
	if who == nil {
		return
	}
	who.Changing(f.beside != nil)
	if f.beside == nil {
		f.db.seen.add(p)
	}
}

// add remembers a write of a transaction of a rollback mode.
func (o *observation) add(p Piece) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pending.Store(true)
	switch n := len(o.written); {
	case n > 0 && o.written[n-1].Off+o.written[n-1].Len == p.Off:
		o.written[n-1].Len += p.Len
	case n < maxPieces:
		o.written = append(o.written, p)
	default:
		o.many = true
	}
}

// changed is called at the end of a transaction of a rollback mode. A connection may end it more than once.
func (d *database) changed() {
	who := d.observer()
	if who == nil || !d.seen.pending.Load() {
		return
	}
	o := &d.seen
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.many {
		o.written = nil
	}
	who.Changed(o.written)
	o.written, o.many = nil, false
	o.pending.Store(false)
}

// tellCommit is called when the frames of the WAL that this connection wrote are committed.
func (f *file) tellCommit() {
	at := f.frames.commit
	f.frames.commit = 0
	f.late.drop()
	if who := f.db.observer(); who != nil && at != 0 {
		who.Committed(at)
	}
}

// lateCommit is a commit that nothing follows: neither a sync, with synchronous NORMAL or OFF, nor a use of the WAL's
// index, which a connection with locking_mode EXCLUSIVE does not lock.
type lateCommit struct {
	mu    sync.Mutex
	at    int64 // the frame that ends it; 0: none
	timer *time.Timer

	syncs bool // a sync followed the last commit; the connection uses it
}

// lateAfter is when a commit that nothing follows is told. A sync begins microseconds after its commit is written.
const lateAfter = time.Second

// tellLater is called after a write to the WAL, with the commit that was not told before it. It is told with the next one,
// or after a while.
func (f *file) tellLater(before int64) {
	w := f.frames
	who := f.db.observer()
	if who == nil || w.commit == 0 || w.headed {
		return
	}
	l := &f.late
	l.mu.Lock()
	defer l.mu.Unlock()
	if before != 0 && before != w.commit {
		l.syncs = false
		who.Committed(before)
	}
	if l.syncs || l.at == w.commit {
		return
	}
	if l.at = w.commit; l.timer == nil {
		l.timer = time.AfterFunc(lateAfter, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.at != 0 {
				who.Committed(l.at)
				l.at = 0
			}
		})
		return
	}
	l.timer.Reset(lateAfter)
}

// tellLast tells a commit that nothing has followed.
func (f *file) tellLast() {
	if f.frames != nil && !f.frames.headed {
		f.tellCommit()
	}
}

// drop forgets the commit: it was told, or its frames will be lost.
func (l *lateCommit) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at = 0; l.timer != nil {
		l.timer.Stop()
	}
}

// syncing is called before a sync of the WAL. It may be that of a checkpoint, and says nothing then.
func (f *file) syncing() {
	if f.frames == nil {
		return
	}
	f.late.drop()
	if f.main == nil || !f.main.checkpoint {
		f.late.syncs = f.late.syncs || f.frames.commit != 0
	}
}

// restarting is called before the committed frames of the WAL are lost.
func (f *file) restarting() {
	f.tellLast()
	if who := f.db.observer(); who != nil {
		who.Restarting(false)
	}
}

// Unlock releases locks of a database. A transaction of a rollback mode has then ended, whatever its journal is.
func (f *file) Unlock(lock vfs.LockLevel) error {
	if f.owner && lock <= vfs.LOCK_SHARED && f.beside == nil {
		f.db.changed()
	}
	return f.File.Unlock(lock)
}

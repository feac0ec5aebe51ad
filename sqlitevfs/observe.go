// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"errors"
	"sync"
	"sync/atomic"

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
	// Committed is called after a commit of a WAL, before SQLite returns from it. The commit is durable; with
	// synchronous NORMAL or OFF it is written. The frame that ends it begins at this offset of the WAL.
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

// tellCommit tells the commit that this connection has written, once. It is called when that is certain, before the lock
// of the writer is released: after the sync that makes the commit durable, or else when SQLite uses the WAL's index. The
// index of a connection with locking_mode EXCLUSIVE is in SQLite's memory, and no other connection writes: the end of the
// transaction is soon enough.
func (f *file) tellCommit() {
	at := f.frames.commit
	f.frames.commit = 0
	if who := f.db.observer(); who != nil && at != 0 {
		who.Committed(at)
	}
}

// restarting is called before the committed frames of the WAL are lost.
func (f *file) restarting() {
	if who := f.db.observer(); who != nil {
		who.Restarting(false)
	}
}

// Unlock releases locks of a database. A transaction of a rollback mode has then ended, whatever its journal is.
func (f *file) Unlock(lock vfs.LockLevel) error {
	switch {
	case f.beside != nil:
		f.beside.frames.changed()
	case f.owner && lock <= vfs.LOCK_SHARED:
		f.db.changed()
	}
	return f.File.Unlock(lock)
}

// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// database is shared by the connections of one database, until the last of them is
// closed.
type database struct {
	vfs  *ringVFS
	path string
	opts Options
	refs int // guarded by databases.mu

	joining sync.Once
	group   *syncGroup // nil without group sync
	device  uint64     // of the database and of the files that its group syncs
	// groupOff is why there is no group sync. It is nil until the first connection has joined a group.
	groupOff atomic.Pointer[string]

	commits commits
	seen    observation

	counters
	noPrefetch atomic.Pointer[string] // why there is no prefetch
	// synced is set when SQLite has asked for a sync: synchronous is not OFF.
	synced atomic.Bool
	// walMode is set by a sync of the WAL, and ends when a rollback journal is opened.
	walMode atomic.Bool
	// journalRead is set when a rollback journal was read for the first time.
	journalRead atomic.Bool
	// journalSyncs counts the syncs of the rollback journal since it was made.
	// One connection writes at a time.
	journalSyncs atomic.Int64

	entry  atomic.Pointer[identity] // of the journal or WAL whose directory entry was synced last
	failed atomic.Pointer[error]
}

// durable reports whether the directory entry of a file was synced.
func (d *database) durable(id func() identity) bool {
	if d == nil {
		return false
	}
	known := d.entry.Load()
	return known != nil && *known == id()
}

// fail records the first sync that failed. Every later sync of this database returns the
// same error until all of its connections are closed. The kernel reports a failure once and
// then treats the lost pages as written, so a later sync would succeed although data are lost.
func (d *database) fail(err error) {
	if d != nil && d.failed.CompareAndSwap(nil, &err) {
		d.opts.logger().Error("sqlitevfs: sync failed; the database refuses further ones until it is closed",
			"database", d.path, "error", err)
	}
}

// failure returns the error that fail recorded, or nil.
func (d *database) failure() error {
	if d == nil {
		return nil
	}
	if err := d.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// count calls fn with the counters of the database. It does nothing if d is nil.
func (d *database) count(fn func(*counters)) {
	if d != nil {
		fn(&d.counters)
	}
}

// databases are the open databases of a VFS, by path.
type databases struct {
	mu   sync.Mutex
	open map[string]*database
	done Stats // the sum for closed databases
}

// acquire returns the database of a path for one more connection. The options of the first
// connection apply to everything that the connections share.
func (d *databases) acquire(v *ringVFS, path string, fd int, opts Options) *database {
	d.mu.Lock()
	db := d.open[path]
	if db == nil {
		db = &database{vfs: v, path: path, opts: opts}
		d.open[path] = db
	}
	db.refs++
	d.mu.Unlock()
	db.joining.Do(func() { // without the mutex, as it asks the file system
		off := db.join(fd)
		db.groupOff.Store(&off)
	})
	db.observe()
	return db
}

func (d *databases) release(db *database) {
	if d.left(db) > 0 {
		return
	}
	if who := db.observer(); who != nil {
		who.Closed()
	}
}

// left counts a closed connection, and returns how many are left.
func (d *databases) left(db *database) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if db.refs--; db.refs == 0 {
		delete(d.open, db.path)
		d.done = d.done.Plus(db.stats())
	}
	return db.refs
}

// of returns the open database that a journal or WAL belongs to.
func (d *databases) of(name string) *database {
	for _, suffix := range []string{suffixJournal, suffixWAL} {
		if path, ok := strings.CutSuffix(name, suffix); ok {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.open[path]
		}
	}
	return nil
}

// join finds the sync group of the database. It returns the reason if there is none.
func (d *database) join(fd int) (off string) {
	switch {
	case d.opts.GroupSync == Off:
		return "off"
	case fd < 0:
		return "off: not the default VFS's files"
	case !syncfsReports():
		return "off: syncfs of this kernel may hide failures (needs Linux 5.17)"
	}
	how, reason := sharingOf(fd)
	d.device = fileID(fd).Device
	if d.group = syncGroupOf(fd, how, d.opts.GroupSync == On); d.group == nil {
		return "off: " + reason
	}
	return ""
}

// shares reports whether the group of the database can sync a file. A database that is mounted as a
// single file has its journal and its WAL on another file system, and a syncfs of either one says
// nothing about the other.
func (d *database) shares(fd int) bool {
	return d != nil && d.group != nil && fd >= 0 && fileID(fd).Device == d.device
}

// identity identifies a file. It also distinguishes files that had the same inode number
// one after the other. It is zero if it is not known.
type identity struct {
	device, inode uint64
	born          int64 // nanoseconds
}

// unique reports whether no other file can get the same identity from now on. Inode numbers
// are reused at once, and timestamps of file systems have ticks of up to 10 ms.
func (id identity) unique() bool {
	return id != (identity{}) && time.Since(time.Unix(0, id.born)) > 50*time.Millisecond
}

// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"cmp"
	"errors"
	"io/fs"
	"runtime"
	"sync"
	"time"

	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
	"github.com/ringside-io/ringside/sqlitevfs/internal/grouplog"
)

// logRetry is how long a database waits after it could not open or use a log before it
// tries again: another process may have closed the log. Tests shorten it.
var logRetry = 5 * time.Second

// commits makes the commits of a database durable with a log.
type commits struct {
	mu   sync.Mutex
	want bool   // the first connection asked for a log
	off  string // why there is no log
	wal  *grouplog.WAL
	log  *sharedLog // of wal
	refs int        // open files of the WAL
	next time.Time  // when to try to open a log again
	told string     // the reason that was logged last
}

var errMoved = errors.New("the name of the WAL leads to another file")

// stateReady is the state of a database that may use a log but has not opened one yet.
const stateReady = "ready: no commit in WAL mode has needed it"

// configure records whether the first connection asked for a log.
func (c *commits) configure(o Options) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.want:
	case o.GroupLog != On:
		c.off = "off"
	case runtime.GOOS != "linux":
		c.off = "off: needs the locks of open files that Linux has"
	default:
		c.want, c.off = true, stateReady
	}
}

// walOpened is called for each open file of the WAL. It reports whether the database
// may use a log.
func (c *commits) walOpened() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.want {
		c.refs++
	}
	return c.want
}

// walClosed is called when a file of the WAL is closed; the last one detaches the WAL.
func (c *commits) walClosed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refs--; c.refs > 0 || c.wal == nil {
		return nil
	}
	c.off = stateReady
	return c.drop()
}

// drop detaches the WAL and releases its log. The caller holds the mutex.
func (c *commits) drop() error {
	err := cmp.Or(c.wal.Close(), c.log.release())
	c.wal, c.log = nil, nil
	return err
}

// attach attaches the WAL to a log for later commits. The caller has synced the WAL: it is
// durable up to end, the end of its last commit. If no log is available, commits sync the
// WAL as without a log. An error means that the WAL could not be synced. A directory that cannot be
// synced is an error only for the log, as without it.
func (c *commits) attach(w *walFile, h grouplog.Header, end int64) error {
	db := w.db
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wal != nil {
		return nil
	}
	if now := time.Now(); now.Before(c.next) {
		return nil
	} else {
		c.next = now.Add(logRetry)
	}
	log, err := db.vfs.acquireLog(db.path, db.opts)
	var wal *grouplog.WAL
	if err == nil {
		if wal, err = log.log.Attach(w.path); err == nil && !sameFile(w.id, wal) {
			err = cmp.Or(wal.Close(), errMoved)
		}
		if err != nil {
			_ = log.release() // a log that is not emptied is replayed, without an effect
		}
	}
	switch {
	case err == nil:
		c.wal, c.log = wal, log
		wal.SyncedTo(h, end)
		c.off = ""
		return nil
	case errors.Is(err, grouplog.ErrInUse):
		c.off = "off: another process uses the log"
	default:
		c.off = "off: " + err.Error()
		if c.off != c.told && !errors.Is(err, grouplog.ErrClaimed) {
			c.told = c.off
			db.opts.logger().Warn("sqlitevfs: the log of commits cannot be used; the WAL is synced instead", "database", db.path, "error", err)
		}
	}
	if _, ok := errors.AsType[*grouplog.SyncError](err); ok && !mayIgnore(err) {
		return err
	}
	return nil
}

// mayIgnore reports whether an error of the sync of a directory means that the directory cannot be synced
// at all, rather than that a sync failed.
func mayIgnore(err error) bool { return errors.Is(err, fs.ErrPermission) || unsupportedSync(err) }

// sameFile reports whether a WAL of a log is the file with an identity, which is zero if it is not known. It is
// another file if the database was deleted while it was open, and another one has its name.
func sameFile(id disk.ID, wal *grouplog.WAL) bool { return id == (disk.ID{}) || id == wal.ID() }

// detach detaches the WAL from a log that has failed or was removed, and syncs it.
// Commits then sync the WAL until a log is available again.
func (c *commits) detach(db *database) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wal == nil || !c.log.log.Failed() {
		return nil
	}
	why := c.log.log.Err()
	err := c.drop()
	c.off = "off: " + why.Error()
	c.next = time.Now().Add(logRetry)
	c.told = c.off
	db.opts.logger().Warn("sqlitevfs: the log of commits has failed; the WAL is synced instead", "database", db.path, "error", why)
	return err
}

// attached returns the log's handle of the WAL, nil without a log.
func (c *commits) attached() *grouplog.WAL {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wal
}

// syncWAL syncs the WAL if some of its commits are durable in the log only.
func (c *commits) syncWAL() error {
	if wal := c.attached(); wal != nil && wal.Dirty() {
		return wal.Sync()
	}
	return nil
}

func (c *commits) state() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wal != nil {
		return "on"
	}
	return c.off
}

// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
	"github.com/ringside-io/ringside/sqlitevfs/internal/grouplog"
)

// sharedLog is a group log and how many databases use it.
type sharedLog struct {
	log  *grouplog.Log
	key  logKey
	refs int
}

// logKey says which log a database has: one for a directory, whatever VFS its
// databases are opened by.
type logKey struct {
	fs  disk.FS
	dir string
}

// logs are those that the process has open.
var logs = struct {
	mu   sync.Mutex
	open map[logKey]*sharedLog
}{open: map[logKey]*sharedLog{}}

// logOptions returns how the logs of a base VFS's databases are kept: tests have
// bases that watch them.
func logOptions(base vfs.VFS) grouplog.Options {
	if d, ok := base.(interface{ GroupLog() grouplog.Options }); ok {
		return d.GroupLog()
	}
	return grouplog.Options{FS: disk.OS}
}

// logOf returns which log a database has, and how it is kept. One that is in the
// directory of its databases serves no others: what lies in a directory cannot
// reach out of it.
func (v *ringVFS) logOf(database string, o Options) (logKey, grouplog.Options) {
	how := logOptions(v.VFS)
	key := logKey{how.FS, o.GroupLogDir}
	if key.dir == "" {
		key.dir = filepath.Dir(database)
		how.Local = true
	}
	return key, how
}

// recoverLog prepares a database that is about to be opened: what a log holds
// for it is replayed, also when it is not to use one. One that is opened to read
// only is not changed: if it lacks commits, it cannot be opened, as SQLite has it
// of a WAL that needs to be recovered.
func (v *ringVFS) recoverLog(database string, flags vfs.OpenFlag, o Options) error {
	if runtime.GOOS != "linux" {
		return nil
	}
	key, how := v.logOf(database, o)
	logs.mu.Lock()
	defer logs.mu.Unlock()
	if logs.open[key] != nil {
		return nil // which replayed what there was
	}
	if flags&vfs.OPEN_READONLY == 0 {
		return replay(key.dir, how, o.logger())
	}
	lacks, err := grouplog.Lacks(key.dir, database+suffixWAL, how)
	switch {
	case lacks:
		return vfs.SystemError(errUnreplayed, sqlite3.READONLY_RECOVERY)
	case err == nil || unseen(err):
		return nil
	}
	return logError(err)
}

var errUnreplayed = errors.New("sqlitevfs: the log of commits holds some that the database lacks, which is opened to read only")

// replay brings what a log holds into its databases. The caller holds the mutex.
func replay(dir string, how grouplog.Options, logger *slog.Logger) error {
	report, err := grouplog.Recover(dir, how)
	switch {
	case err == nil:
		replayed(logger, dir, report)
		return nil
	case errors.Is(err, grouplog.ErrInUse), unseen(err):
		return nil
	}
	return logError(err)
}

// unseen says whether an error means that there is no log that we could use.
func unseen(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported)
}

// acquireLog opens the log of a database for its first commit, and creates it
// if it has to be. The caller has to release it.
func (v *ringVFS) acquireLog(database string, o Options) (*sharedLog, error) {
	key, how := v.logOf(database, o)
	logs.mu.Lock()
	defer logs.mu.Unlock()
	if l := logs.open[key]; l != nil {
		l.refs++
		return l, nil
	}
	l, report, err := grouplog.Open(key.dir, how)
	if err != nil {
		return nil, err
	}
	replayed(o.logger(), l.Path(), report)
	s := &sharedLog{log: l, key: key, refs: 1}
	logs.open[key] = s
	return s, nil
}

func replayed(logger *slog.Logger, path string, r grouplog.Report) {
	if r.Records > 0 {
		logger.Info("sqlitevfs: commits replayed from the log", "log", path, "commits", r.Records,
			"written", r.Applied, "bytes", r.Written, "superseded", r.Superseded, "invalid", r.Invalid)
	}
}

// logError says to SQLite why a database cannot be opened.
func logError(err error) error {
	if errors.Is(err, grouplog.ErrBusy) {
		return vfs.SystemError(err, sqlite3.BUSY)
	}
	return vfs.SystemError(err, sqlite3.CANTOPEN)
}

// release lets go of the log, which is closed with its last database.
func (s *sharedLog) release() error {
	if s == nil {
		return nil
	}
	logs.mu.Lock()
	defer logs.mu.Unlock()
	if s.refs--; s.refs > 0 {
		return nil
	}
	delete(logs.open, s.key)
	return s.log.Close()
}

// commits is how a database's WAL becomes durable through a log.
type commits struct {
	mu   sync.Mutex
	want bool       // a connection asked for a log
	log  *sharedLog // nil until a commit has needed it
	off  string     // why there is none
	wal  *grouplog.WAL
	refs int // open files of the WAL
}

// What state says of a database that could have a log and has none yet.
const stateReady = "ready: no commit in WAL mode has needed it"

// adopt notes what a connection asks for.
func (c *commits) adopt(o Options) {
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

// close is called with the last connection.
func (c *commits) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.log.release()
	c.log = nil
	return err
}

// opened is called for each file of the WAL; it says whether there may be a log.
func (c *commits) opened() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.want {
		c.refs++
	}
	return c.want
}

func (c *commits) closed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refs--; c.refs > 0 || c.wal == nil {
		return nil
	}
	err := c.wal.Close()
	c.wal = nil
	return err
}

// attach gives the WAL to a log, for the commits to come. Where that is not to
// be had, commits sync the WAL as without a log; an error means that the WAL
// could not be synced.
//
// The WAL is durable up to the end of the commit that was synced just now.
func (c *commits) attach(db *database, path string, h grouplog.Header, end int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wal != nil {
		return nil
	}
	var err error
	if c.log == nil {
		c.log, err = db.vfs.acquireLog(db.path, db.opts)
	}
	if err == nil {
		c.wal, err = c.log.log.Attach(path)
	}
	switch {
	case err == nil:
		c.wal.Learn(h, end)
		c.off = ""
		return nil
	case errors.Is(err, grouplog.ErrInUse):
		c.off = "off: another process uses the log"
	default:
		c.off = "off: " + err.Error()
		if !errors.Is(err, grouplog.ErrClaimed) && !unseen(err) {
			db.opts.logger().Warn("sqlitevfs: no log of commits", "database", db.path, "error", err)
		}
	}
	if _, ok := errors.AsType[*grouplog.SyncError](err); ok {
		return err
	}
	return nil
}

// attached returns the WAL, nil when it has no log.
func (c *commits) attached() *grouplog.WAL {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wal
}

// settle makes sure that the WAL is durable by itself.
func (c *commits) settle() error {
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

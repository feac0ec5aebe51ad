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

// openLog prepares a database that is about to be opened: what a log holds for
// it is replayed, also when it is not to use one. It returns the log, nil for
// none, which the caller has to release, and why there is none.
func (v *ringVFS) openLog(database string, o Options) (*sharedLog, string, error) {
	if runtime.GOOS != "linux" {
		return nil, "off: needs the locks of open files that Linux has", nil
	}
	how := logOptions(v.VFS)
	key := logKey{how.FS, o.GroupLogDir}
	if key.dir == "" {
		key.dir = filepath.Dir(database)
	}
	logs.mu.Lock()
	defer logs.mu.Unlock()
	if l := logs.open[key]; l != nil {
		if o.GroupLog != On {
			return nil, "off", nil
		}
		l.refs++
		return l, "", nil
	}
	if o.GroupLog != On {
		return nil, "off", replay(key.dir, how, o.logger())
	}
	l, report, err := grouplog.Open(key.dir, how)
	switch {
	case errors.Is(err, grouplog.ErrInUse):
		return nil, "off: another process uses the log", nil
	case errors.Is(err, fs.ErrPermission), errors.Is(err, errors.ErrUnsupported):
		return nil, "off: " + err.Error(), nil
	case err != nil:
		return nil, "", logError(err)
	}
	replayed(o.logger(), l.Path(), report)
	s := &sharedLog{log: l, key: key, refs: 1}
	logs.open[key] = s
	return s, "", nil
}

// replay brings what a log holds into its databases. The caller holds the mutex.
func replay(dir string, how grouplog.Options, logger *slog.Logger) error {
	report, err := grouplog.Recover(dir, how)
	switch {
	case err == nil:
		replayed(logger, dir, report)
		return nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, grouplog.ErrInUse),
		errors.Is(err, fs.ErrPermission), errors.Is(err, errors.ErrUnsupported):
		return nil
	}
	return logError(err)
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
	log  *sharedLog // nil without
	off  string     // why
	wal  *grouplog.WAL
	refs int // open files of the WAL
}

// adopt gives the database the log of its first connection that has one.
func (c *commits) adopt(l *sharedLog, off string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.log != nil || l == nil {
		if c.log == nil {
			c.off = off
		}
		l.release() // another connection's: it stays open
		return
	}
	c.log, c.off = l, ""
}

// close is called with the last connection.
func (c *commits) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.log.release()
	c.log = nil
	return err
}

// attach is called for each file of the WAL that is opened.
func (c *commits) attach(path string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.log == nil {
		return false
	}
	if c.wal == nil {
		wal, err := c.log.log.Attach(path)
		if err != nil {
			c.off = "off: " + err.Error()
			return false
		}
		c.wal, c.off = wal, ""
	}
	c.refs++
	return true
}

func (c *commits) detach() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refs--; c.refs > 0 {
		return nil
	}
	err := c.wal.Close()
	c.wal = nil
	return err
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
	if c.log != nil && c.off == "" {
		return "on"
	}
	return c.off
}

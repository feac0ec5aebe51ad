// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"sync"
	"syscall"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"
	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
	"github.com/ringside-io/ringside/sqlitevfs/internal/grouplog"
)

// sharedLog is an open log and the number of databases that use it.
type sharedLog struct {
	log  *grouplog.Log
	key  logKey
	refs int
}

// logKey identifies a log. A directory has one log, whichever VFS opens its databases.
type logKey struct {
	fs  disk.FS
	dir string
}

// logs are the logs that the process has open.
var logs = struct {
	mu   sync.Mutex
	open map[logKey]*sharedLog
	// pending are the reports of logs that could not be replayed completely.
	pending map[logKey]*grouplog.Report
	// ways chooses, for each device with an open log, between logs and syncs of WALs.
	ways map[waysKey]*grouplog.Ways
}{open: map[logKey]*sharedLog{}, pending: map[logKey]*grouplog.Report{}, ways: map[waysKey]*grouplog.Ways{}}

type waysKey struct {
	fs     disk.FS
	device uint64
}

// waysOf returns the ways of the file system of a directory. The caller holds the mutex.
func waysOf(key logKey) *grouplog.Ways {
	id, err := key.fs.Lookup(key.dir)
	if err != nil {
		return nil
	}
	k := waysKey{key.fs, id.Device}
	w := logs.ways[k]
	if w == nil {
		w = new(grouplog.Ways)
		logs.ways[k] = w
	}
	return w
}

// logOptions returns the options of the logs below a base VFS. Tests have bases that
// record what a log does.
func logOptions(base vfs.VFS) grouplog.Options {
	if d, ok := base.(interface{ GroupLog() grouplog.Options }); ok {
		return d.GroupLog()
	}
	return grouplog.Options{FS: disk.OS}
}

// logOf returns the key and the options of the log of a database. A log in the directory of
// its databases serves no databases in other directories, so that no file in a directory can
// change files elsewhere.
func (v *ringVFS) logOf(database string, o Options) (logKey, grouplog.Options) {
	how := logOptions(v.VFS)
	key := logKey{how.FS, o.GroupLogDir}
	if key.dir == "" {
		key.dir = filepath.Dir(database)
		how.Local = true
	}
	return key, how
}

// recoverLog replays the log before a database is opened, whether or not the database will
// use a log. It refuses a database that may lack commits because they cannot be written into
// its WAL, or because the log cannot be read. A database that is opened read-only is not
// changed. If it lacks commits it is refused, as SQLite refuses a WAL that needs recovery.
func (v *ringVFS) recoverLog(database string, flags vfs.OpenFlag, o Options) error {
	if runtime.GOOS != "linux" {
		return nil
	}
	wal, err := filepath.Abs(database + suffixWAL)
	if err != nil {
		return logError(err)
	}
	logs.mu.Lock()
	defer logs.mu.Unlock()
	key, how := v.logOf(database, o)
	if err := recoverFrom(key, how, database, wal, flags, o); err != nil {
		return err
	}
	if o.GroupLogDir != "" {
		own := o
		own.GroupLogDir = ""
		if key, how := v.logOf(database, own); !sameDir(key.dir, o.GroupLogDir) {
			if err := recoverFrom(key, how, database, wal, flags, o); err != nil {
				return err
			}
		}
	}
	return logElsewhere(key, how, database, wal)
}

func sameDir(a, b string) bool {
	a, aerr := filepath.Abs(a)
	b, berr := filepath.Abs(b)
	return aerr == nil && berr == nil && a == b
}

// logElsewhere refuses a database that may lack commits of a log in another directory, which the
// pointer file beside its WAL names: if that log is missing, or if another one is in its place. If the
// options name another directory the log must have no commits that the WAL lacks. It is not
// replayed, because a user with permission to create files in the directory of one database
// could then choose which log changes other databases. The caller holds the mutex.
func logElsewhere(key logKey, how grouplog.Options, database, wal string) error {
	at, err := grouplog.Elsewhere(wal, how)
	if err == nil && (at.Dir == "" || sameDir(at.Dir, filepath.Dir(wal))) {
		return nil
	}
	if err == nil {
		how.Local = false
		if err = at.Exists(how); err == nil && !sameDir(at.Dir, key.dir) {
			err = grouplog.Lacks(at.Dir, wal, how)
		}
	}
	switch {
	case err == nil || !usesWAL(database):
		return nil
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("the log is missing; remove %s to open the database without its commits: %w", grouplog.PointerTo(wal), err)
	}
	return logError(fmt.Errorf("%s may lack commits that a log in another directory holds: open it with Options.GroupLogDir or grouplogdir=%q, or use \"ringside log replay\" there: %w", database, at.Dir, err))
}

// recoverFrom replays one log. The caller holds the mutex.
func recoverFrom(key logKey, how grouplog.Options, database, wal string, flags vfs.OpenFlag, o Options) (err error) {
	if logs.open[key] != nil {
		return nil // it was replayed when it was opened
	}
	if flags&vfs.OPEN_READONLY == 0 {
		err = replay(key, how, wal, o.logger())
	}
	if flags&vfs.OPEN_READONLY != 0 || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) || errors.Is(err, errors.ErrUnsupported) {
		err = grouplog.Lacks(key.dir, wal, how)
		if errors.Is(err, grouplog.ErrLacks) && flags&vfs.OPEN_READONLY != 0 {
			return vfs.SystemError(errUnreplayed, sqlite3.READONLY_RECOVERY)
		}
	}
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist), errors.Is(err, grouplog.ErrInUse):
		return nil
	case !usesWAL(database):
		return nil
	}
	return logError(fmt.Errorf("%s may lack commits that the log %s holds: %w", database, grouplog.Path(key.dir, how), err))
}

var errUnreplayed = errors.New("sqlitevfs: the database is opened read-only and lacks commits of its log: open it once for writing, which replays them")

// usesWAL reports whether a database may be in WAL mode, by its header. Only databases in WAL
// mode have commits in a log.
func usesWAL(database string) bool {
	f, err := os.Open(database)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	var p [20]byte
	n, err := io.ReadFull(f, p[:])
	if n == 0 && err == io.EOF {
		return false
	}
	return err != nil || p[18] != 1 || p[19] != 1
}

// replay writes the commits of a log into its databases. It returns the reason why the
// database with the given WAL may lack commits, or nil if it lacks none. The caller holds the
// mutex.
func replay(key logKey, how grouplog.Options, wal string, logger *slog.Logger) error {
	if p := logs.pending[key]; p != nil && p.Lacks(wal) == nil {
		how.Known = p
	}
	report, err := grouplog.Recover(key.dir, how)
	if err != nil {
		delete(logs.pending, key)
		return err
	}
	before := logs.pending[key]
	if delete(logs.pending, key); report.Pending() != nil {
		logs.pending[key] = &report
	}
	if how.Known == nil {
		replayed(logger, key.dir, &report, before)
	}
	return report.Lacks(wal)
}

// acquireLog opens the log of a database for its first commit, creating it if
// necessary. The caller must release it.
func (v *ringVFS) acquireLog(database string, o Options) (*sharedLog, error) {
	key, how := v.logOf(database, o)
	logs.mu.Lock()
	defer logs.mu.Unlock()
	if l := logs.open[key]; l != nil && !l.log.Failed() {
		l.refs++
		return l, nil
	}
	how.Ways = waysOf(key)
	l, report, err := openLog(key.dir, how, o.Trace)
	before := logs.pending[key]
	if delete(logs.pending, key); report.Pending() != nil {
		logs.pending[key] = &report
	}
	replayed(o.logger(), key.dir, &report, before)
	if err != nil {
		return nil, err
	}
	s := &sharedLog{log: l, key: key, refs: 1}
	logs.open[key] = s
	return s, nil
}

// openLog opens a log. With trace its goroutine has the labels of Options.Trace.
func openLog(dir string, how grouplog.Options, trace bool) (l *grouplog.Log, report grouplog.Report, err error) {
	if !trace {
		return grouplog.Open(dir, how)
	}
	opened := make(chan struct{})
	go func() { // the goroutine that it starts inherits its labels
		defer close(opened)
		pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("ringside", "sqlitevfs")))
		l, report, err = grouplog.Open(dir, how)
	}()
	<-opened
	return l, report, err
}

// replayed writes the results and failures of a replay to the logger, except those that were
// written after an earlier replay of the same log.
func replayed(logger *slog.Logger, dir string, r, before *grouplog.Report) {
	if r.Applied > 0 || r.Records > 0 && before == nil {
		logger.Info("sqlitevfs: commits replayed from the log", "directory", dir, "commits", r.Records,
			"written", r.Applied, "bytes", r.Written)
	}
	if before == nil {
		for _, s := range r.Skipped {
			logger.Warn("sqlitevfs: commits of the log were not replayed", "wal", s.WAL, "commits", s.Commits, "reason", s.Why)
		}
	}
	for _, u := range r.Unresolved {
		if before == nil || before.Lacks(u.WAL) == nil {
			logger.Warn("sqlitevfs: the database is refused, as it may lack commits of the log", "wal", u.WAL, "error", u.Err)
		}
	}
}

// logError returns the error with which SQLite refuses to open a database.
func logError(err error) error {
	err = fmt.Errorf("sqlitevfs: %w; \"ringside log inspect\" shows more", err)
	if errors.Is(err, grouplog.ErrBusy) {
		return vfs.SystemError(err, sqlite3.BUSY)
	}
	return vfs.SystemError(err, sqlite3.CANTOPEN)
}

// release closes the log if no other database uses it. It does nothing if s is nil.
func (s *sharedLog) release() error {
	if s == nil {
		return nil
	}
	logs.mu.Lock()
	defer logs.mu.Unlock()
	if s.refs--; s.refs > 0 {
		return nil
	}
	if logs.open[s.key] == s {
		delete(logs.open, s.key)
	}
	if len(logs.open) == 0 {
		clear(logs.ways)
	}
	if err := s.log.Close(); err != nil && !s.log.Failed() {
		return err
	}
	return nil // the WALs were synced instead
}

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
	"time"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"
	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
	"github.com/ringside-io/ringside/sqlitevfs/internal/grouplog"
)

// sharedLog is an open log and the number of databases that use it.
type sharedLog struct {
	log  *grouplog.Log
	dir  *logDir
	refs int
}

// logKey identifies the directory of a log, whatever its name. A directory has one log, whichever VFS opens its
// databases.
type logKey struct {
	fs  disk.FS
	id  disk.ID
	dir string // if the identity is not known
}

// logDir is the log of a directory in this process. A directory whose disk or replay hangs delays its own databases
// only: mu is held over file calls, and no other lock is.
type logDir struct {
	mu   sync.Mutex
	key  logKey
	dir  string // one of its names, without symbolic links
	open *sharedLog
	// pending is the report of a log that could not be replayed completely.
	pending *grouplog.Report
	// busy is the result of the last attempt that waited in vain for another process. Attempts that began
	// before busyAt return it too, so that none waits longer than the first one.
	busy   error
	busyAt time.Time

	users int // goroutines that have or wait for mu; guarded by logs.mu
}

// logs are the directories whose logs the process has open, or has to remember. The mutex is not held over file calls.
var logs = struct {
	mu   sync.Mutex
	dirs map[logKey]*logDir
	// empty has the states in which logs were found without commits.
	empty map[logKey]disk.State
}{dirs: map[logKey]*logDir{}, empty: map[logKey]disk.State{}}

// lockLogDir returns a directory, locked. unlock must be called on it.
func lockLogDir(key logKey, dir string) *logDir {
	logs.mu.Lock()
	d := logs.dirs[key]
	if d == nil {
		d = &logDir{key: key, dir: dir}
		logs.dirs[key] = d
	}
	d.users++
	logs.mu.Unlock()
	d.mu.Lock()
	return d
}

// unlock forgets the directory if there is nothing to remember.
func (d *logDir) unlock() {
	d.mu.Unlock()
	logs.mu.Lock()
	defer logs.mu.Unlock()
	if d.users--; d.users > 0 || d.open != nil || d.pending != nil {
		return
	}
	if logs.dirs[d.key] == d {
		delete(logs.dirs, d.key)
	}
}

// maxEmpty is how many directories are remembered whose log was empty.
const maxEmpty = 256

// clockStep is more than the resolution of the times of files. Tests shorten it.
var clockStep = 2 * time.Second

// wasEmpty reports whether a log had no commits when it was in this state.
func (k logKey) wasEmpty(s disk.State) bool {
	logs.mu.Lock()
	defer logs.mu.Unlock()
	return s != disk.State{} && logs.empty[k] == s
}

// noteEmpty remembers that a log has no commits. It was in this state before that was found out.
func (k logKey) noteEmpty(s disk.State) {
	if s == (disk.State{}) || time.Since(time.Unix(0, s.Changed)) < clockStep {
		return // the next change may have the same time
	}
	logs.mu.Lock()
	defer logs.mu.Unlock()
	if len(logs.empty) >= maxEmpty {
		clear(logs.empty)
	}
	logs.empty[k] = s
}

// waited returns the result of an attempt that waited for another process since start.
func (d *logDir) waited(start time.Time) error {
	if d.busyAt.After(start) {
		return d.busy
	}
	return nil
}

// noteBusy remembers the result of an attempt, if it waited for another process in vain.
func (d *logDir) noteBusy(err error) {
	if errors.Is(err, grouplog.ErrBusy) && !errors.Is(err, grouplog.ErrPending) {
		d.busy, d.busyAt = err, time.Now()
	}
}

// logOptions returns the options of the logs below a base VFS. Tests have bases that
// record what a log does.
func logOptions(base vfs.VFS) grouplog.Options {
	if d, ok := base.(interface{ GroupLog() grouplog.Options }); ok {
		return d.GroupLog()
	}
	return grouplog.Options{FS: disk.OS}
}

// logPlace is where the log of a database is.
type logPlace struct {
	key logKey
	dir string // without symbolic links
	how grouplog.Options
}

// logOf returns the place of the log of a WAL, whose name is that of grouplog.Canonical. A log in the directory of its
// databases serves no databases in other directories, so that no file in a directory can change files elsewhere.
func (v *ringVFS) logOf(wal string, o Options) (logPlace, error) {
	p := logPlace{dir: filepath.Dir(wal), how: logOptions(v.VFS)}
	if p.how.Local = o.GroupLogDir == ""; !p.how.Local {
		inside, err := grouplog.Canonical(filepath.Join(o.GroupLogDir, "log"))
		if err != nil {
			return p, err
		}
		p.dir = filepath.Dir(inside)
	}
	p.key = logKey{fs: p.how.FS}
	var err error
	if p.key.id, err = p.how.FS.Lookup(p.dir); err != nil {
		p.key.dir = p.dir
	}
	return p, nil
}

// recoverLog replays the log before a database is opened, whether or not the database will
// use a log. It refuses a database that may lack commits because they cannot be written into
// its WAL, or because the log cannot be read. A database that is opened read-only is not
// changed. If it lacks commits it is refused, as SQLite refuses a WAL that needs recovery.
func (v *ringVFS) recoverLog(database string, flags vfs.OpenFlag, o Options) error {
	if runtime.GOOS != "linux" {
		return nil
	}
	wal, err := grouplog.Canonical(database + suffixWAL)
	if err != nil {
		return logError(err)
	}
	at, err := v.logOf(wal, o)
	if err == nil {
		err = at.recover(database, wal, flags, o)
	}
	if err != nil {
		return err
	}
	if o.GroupLogDir != "" {
		own := o
		own.GroupLogDir = ""
		beside, err := v.logOf(wal, own)
		if err == nil && beside.key != at.key {
			err = beside.recover(database, wal, flags, o)
		}
		if err != nil {
			return err
		}
	}
	return at.elsewhere(database, wal)
}

// elsewhere refuses a database that may lack commits of a log in another directory, which the
// pointer file beside its WAL names: if that log is missing, or if another one is in its place. If the
// options name another directory the log must have no commits that the WAL lacks. It is not
// replayed, because a user with permission to create files in the directory of one database
// could then choose which log changes other databases.
func (p logPlace) elsewhere(database, wal string) error {
	how := p.how
	at, err := grouplog.Elsewhere(wal, how)
	if err == nil && (at.Dir == "" || at.Dir == filepath.Dir(wal)) {
		return nil
	}
	if err == nil {
		how.Local = false
		if err = at.Exists(how); err == nil && at.Dir != p.dir {
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

// recover replays one log, unless it is missing, or had no commits in the state that it has still.
func (p logPlace) recover(database, wal string, flags vfs.OpenFlag, o Options) error {
	start := time.Now()
	d := lockLogDir(p.key, p.dir)
	defer d.unlock()
	if d.open != nil {
		return nil // it was replayed when it was opened
	}
	state, err := p.how.FS.State(grouplog.Path(p.dir, p.how))
	if d.pending == nil && (errors.Is(err, fs.ErrNotExist) || err == nil && p.key.wasEmpty(state)) {
		return nil
	}
	err = d.waited(start)
	if err == nil && flags&vfs.OPEN_READONLY == 0 {
		err = d.replay(p.how, wal, state, o.logger())
	}
	if flags&vfs.OPEN_READONLY != 0 || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) || errors.Is(err, errors.ErrUnsupported) {
		err = grouplog.Lacks(p.dir, wal, p.how)
		d.noteBusy(err)
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
	return logError(fmt.Errorf("%s may lack commits that the log %s holds: %w", database, grouplog.Path(p.dir, p.how), err))
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
// database with the given WAL may lack commits, or nil if it lacks none. The log was in this state before. The caller
// holds the mutex.
func (d *logDir) replay(how grouplog.Options, wal string, state disk.State, logger *slog.Logger) error {
	if p := d.pending; p != nil && p.Lacks(wal) == nil {
		how.Known = p
	}
	report, err := grouplog.Recover(d.dir, how)
	before := d.pending
	d.pending = nil
	if err != nil {
		d.noteBusy(err)
		return err
	}
	if report.Pending() != nil {
		d.pending = &report
	}
	if report.ID == 0 { // it was closed after its last commit
		d.key.noteEmpty(state)
	}
	if how.Known == nil {
		replayed(logger, d.dir, &report, before)
	}
	return report.Lacks(wal)
}

// acquireLog opens the log of a database for its first commit, creating it if
// necessary. The caller must release it.
func (v *ringVFS) acquireLog(database string, o Options) (*sharedLog, error) {
	wal, err := grouplog.Canonical(database + suffixWAL)
	if err != nil {
		return nil, err
	}
	at, err := v.logOf(wal, o)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	d := lockLogDir(at.key, at.dir)
	defer d.unlock()
	if s := d.open; s != nil && !s.log.Failed() {
		s.refs++
		return s, nil
	}
	if err := d.waited(start); err != nil {
		return nil, err
	}
	l, report, err := openLog(d.dir, at.how, o.Trace)
	before := d.pending
	d.pending = nil
	if report.Pending() != nil {
		d.pending = &report
	}
	replayed(o.logger(), d.dir, &report, before)
	if err != nil {
		d.noteBusy(err)
		return nil, err
	}
	d.open = &sharedLog{log: l, dir: d, refs: 1}
	return d.open, nil
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
	switch {
	case r.Applied > 0:
		logger.Info("sqlitevfs: commits replayed from the log", "directory", dir, "commits", r.Records,
			"written", r.Applied, "bytes", r.Written)
	case r.Records > 0 && before == nil && len(r.Skipped)+len(r.Unresolved) == 0:
		logger.Info("sqlitevfs: the log was not closed, and no commit was missing", "directory", dir, "commits", r.Records)
	}
	if before == nil {
		for _, s := range r.Skipped {
			args := []any{"wal", s.WAL, "commits", s.Commits, "reason", s.Why}
			if r.Kept != "" {
				args = append(args, "kept", r.Kept)
			}
			logger.Warn("sqlitevfs: commits of the log were not replayed", args...)
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
	s.dir.users++
	logs.mu.Unlock()
	s.dir.mu.Lock()
	defer s.dir.unlock()
	if s.refs--; s.refs > 0 {
		return nil
	}
	if s.dir.open == s {
		s.dir.open = nil
	}
	if err := s.log.Close(); err != nil && !s.log.Failed() {
		return err
	}
	return nil // the WALs were synced instead
}

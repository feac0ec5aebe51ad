// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
	"github.com/ringside-io/ringside/sqlitevfs/internal/grouplog"
)

const tenantsArg = "sqlitevfs-tenants"

// tenantsProcess is the main function of a process that commits to the databases of a
// directory by their log, and ends without closing anything.
func tenantsProcess(dir string) int {
	for i := range 3 {
		c, err := sqlite3.Open(uri(filepath.Join(dir, fmt.Sprint(i)), NameLog))
		if err == nil {
			err = c.Exec("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t(v)")
		}
		for range 3 {
			if err == nil {
				err = c.Exec("INSERT INTO t VALUES('row')")
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return 0
}

// crashedTenants makes three databases with three rows each, which after a power cut only
// their log has.
func crashedTenants(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	crashTenants(t, dir)
	return dir
}

func crashTenants(t *testing.T, dir string) {
	t.Helper()
	needLog(t)
	child := exec.Command(os.Args[0], tenantsArg, dir)
	child.Stderr = os.Stderr
	if err := child.Run(); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		wal := filepath.Join(dir, fmt.Sprint(i)) + suffixWAL
		// The commit of the table, of two pages, found no log yet and synced the WAL.
		if err := os.Truncate(wal, walHeaderSize+2*(frameHeaderSize+4096)); err != nil {
			t.Fatal(err)
		}
		os.Remove(filepath.Join(dir, fmt.Sprint(i)) + "-shm")
	}
}

// countRows opens a database and counts its rows.
func countRows(path, vfsName string) (n int, err error) {
	c, err := sqlite3.Open(uri(path, vfsName))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	s, _, err := c.Prepare("SELECT count(*) FROM t")
	if err != nil {
		return 0, err
	}
	defer s.Close()
	s.Step()
	return s.ColumnInt(0), s.Err()
}

// TestOneTenantIsRefused checks that a database whose commits cannot be replayed is
// refused, with a reason, that the other databases are not, and that it has its commits as
// soon as they can be replayed.
// Promise: sqlitevfs/database-lack-commits
func TestOneTenantIsRefused(t *testing.T) {
	for _, k := range []struct {
		name  string
		spoil func(t *testing.T, dir, db string) func()
		want  string
	}{
		{"WAL is a link", func(t *testing.T, dir, db string) func() { return replaceWAL(t, db, os.Symlink) }, "1-wal"},
		{"WAL is a directory", func(t *testing.T, dir, db string) func() {
			return replaceWAL(t, db, func(_, wal string) error { return os.Mkdir(wal, 0o700) })
		}, "1-wal"},
		{"in use", func(t *testing.T, dir, db string) func() {
			c := connect(t, db, "os", "mode", "ro")
			query(t, c, "SELECT count(*) FROM t")
			return func() { c.Close() }
		}, "locked"},
		{"the log is damaged", func(t *testing.T, dir, db string) func() {
			log := filepath.Join(dir, logName)
			p, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			at := bytes.Index(p, []byte("1-wal")) + 1000
			p[at] ^= 1
			if err := os.WriteFile(log, p, 0o600); err != nil {
				t.Fatal(err)
			}
			return func() {
				p[at] ^= 1
				if err := os.WriteFile(log, p, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}, logName + " is damaged at"},
	} {
		t.Run(k.name, func(t *testing.T) {
			dir := crashedTenants(t)
			one := filepath.Join(dir, "1")
			restore := k.spoil(t, dir, one)
			for range 2 {
				for i := range 3 {
					n, err := countRows(filepath.Join(dir, fmt.Sprint(i)), []string{Name, NameLog}[i%2])
					switch {
					case i == 1 && (err == nil || !strings.Contains(err.Error(), k.want)):
						t.Errorf("not refused, or refused without a reason: %d rows, %v", n, err)
					case i != 1 && (err != nil || n != 3):
						t.Errorf("database %d: %d rows, %v", i, n, err)
					}
				}
			}
			// The other databases continue; their commits do not use the log, which is
			// kept.
			c := connect(t, filepath.Join(dir, "0"), NameLog)
			execSQL(t, c, "PRAGMA synchronous=FULL; INSERT INTO t VALUES('more'); INSERT INTO t VALUES('more')")
			if s := query(t, c, "PRAGMA ringside"); !strings.Contains(s, "still to be replayed") {
				t.Error(s)
			}
			restore()
			if n, err := countRows(one, Name); err != nil || n != 3 {
				t.Errorf("afterwards: %d rows, %v", n, err)
			}
		})
	}
}

// TestReplayIsLogged opens a database of a crashed directory in which one database is
// missing and the WAL of another is a link. The replay logs what it did with each.
func TestReplayIsLogged(t *testing.T) {
	dir := crashedTenants(t)
	path := func(i int) string { return filepath.Join(dir, fmt.Sprint(i)) }
	replaceWAL(t, path(1), os.Symlink)
	for _, suffix := range []string{"", suffixWAL} {
		if err := os.Remove(path(2) + suffix); err != nil {
			t.Fatal(err)
		}
	}
	logger, await := ringtest.Logger(t)
	c := connect(t, path(0), register(t, Options{GroupLog: On, Logger: logger}))
	wantQuery(t, c, "SELECT count(*) FROM t", "3")
	await("sqlitevfs: commits replayed from the log")
	await(`"sqlitevfs: commits of the log were not replayed" wal=` + path(2) + suffixWAL + " commits=3")
	await(`"sqlitevfs: the database is refused, as it may lack commits of the log" wal=` + path(1) + suffixWAL)
	execSQL(t, c, "PRAGMA synchronous=FULL; INSERT INTO t VALUES('more')")
	await(`"sqlitevfs: the log of commits cannot be used; the WAL is synced instead" database=` + path(0))
}

// replaceWAL replaces a WAL by something else.
func replaceWAL(t *testing.T, db string, put func(moved, wal string) error) func() {
	t.Helper()
	wal := db + suffixWAL
	if err := os.Rename(wal, wal+".moved"); err != nil {
		t.Fatal(err)
	}
	if err := put(wal+".moved", wal); err != nil {
		t.Fatal(err)
	}
	return func() {
		os.Remove(wal)
		if err := os.Rename(wal+".moved", wal); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLogThatCannotBeRead checks that the databases in WAL mode are refused, with the name
// of the log.
// Promise: sqlitevfs/database-lack-commits
func TestLogThatCannotBeRead(t *testing.T) {
	dir := crashedTenants(t)
	log := filepath.Join(dir, logName)
	other := connect(t, filepath.Join(dir, "rollback"), "os")
	execSQL(t, other, "CREATE TABLE t(v)")
	if err := os.WriteFile(filepath.Join(dir, "empty"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(log, log+".moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(log, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"rwc", "ro"} {
		c, err := sqlite3.Open(uri(filepath.Join(dir, "0"), Name, "mode", mode))
		if err == nil {
			c.Close()
		}
		if err == nil || !strings.Contains(err.Error(), log) {
			t.Errorf("%s: not refused, or refused without a reason: %v", mode, err)
		}
	}
	if _, err := countRows(filepath.Join(dir, "rollback"), Name); err != nil {
		t.Error("a database without a WAL:", err)
	}
	for _, name := range []string{"new", "empty"} {
		if c, err := sqlite3.Open(uri(filepath.Join(dir, name), Name)); err != nil {
			t.Errorf("a database that is %s: %v", name, err)
		} else {
			c.Close()
		}
	}
	if err := os.Remove(log); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(log+".moved", log); err != nil {
		t.Fatal(err)
	}
	if n, err := countRows(filepath.Join(dir, "0"), Name); err != nil || n != 3 {
		t.Errorf("afterwards: %d rows, %v", n, err)
	}
}

// TestCopiedDirectory finds the commits in a copy of a crashed directory, and in one whose
// database was renamed.
// Promise: sqlitevfs/commits-log-replayed
func TestCopiedDirectory(t *testing.T) {
	dir := crashedTenants(t)
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", suffixWAL} {
		if err := os.Rename(filepath.Join(to, "2"+suffix), filepath.Join(to, "two"+suffix)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"0", "1", "two"} {
		if n, err := countRows(filepath.Join(to, name), Name); err != nil || n != 3 {
			t.Errorf("%s: %d rows, %v", name, n, err)
		}
	}
}

// failFS makes calls of the log fail.
type failFS struct {
	disk.FS
	awaitLog func(text string) // waits for a message that the VFS logs
	mu       sync.Mutex
	fail     func(op, name string, off int64) error
	lookup   func() error // called after each write of a batch
	opens    atomic.Int64 // of the log
}

func (f *failFS) Lookup(name string) (disk.ID, error) {
	if f.lookup != nil {
		if err := f.lookup(); err != nil {
			return disk.ID{}, err
		}
	}
	return f.FS.Lookup(name)
}

func (f *failFS) SyncDir(dir string) error {
	if err := f.call("syncdir", dir, 0); err != nil {
		return err
	}
	return f.FS.SyncDir(dir)
}

func (f *failFS) call(op, name string, off int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return f.fail(op, filepath.Base(name), off)
	}
	return nil
}

func (f *failFS) set(fail func(op, name string, off int64) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

func (f *failFS) Open(name string, flag disk.Flag, perm fs.FileMode) (disk.File, error) {
	if grouplog.Reserved(name) {
		f.opens.Add(1)
	}
	file, err := f.FS.Open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &failFile{file, f, name}, nil
}

type failFile struct {
	disk.File
	fs   *failFS
	name string
}

func (f *failFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.fs.call("write", f.name, off); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f *failFile) Sync() error {
	if err := f.fs.call("sync", f.name, 0); err != nil {
		return err
	}
	return f.File.Sync()
}

// logBase is the default VFS with a small log in its own files.
type logBase struct {
	vfs.VFS
	fs *failFS
}

func (b *logBase) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	return vfsutil.WrapOpenFilename(b.VFS, name, flags)
}

func (b *logBase) GroupLog() grouplog.Options {
	return grouplog.Options{FS: b.fs, SegmentSize: 32 << 10, MaxSize: 128 << 10, MaxRecord: 24 << 10, Always: true, Local: true}
}

// withWholeLog registers a VFS whose log is small and takes each permitted commit. It
// returns the file system of the log.
func withWholeLog(t *testing.T) (name string, fsys *failFS) {
	t.Helper()
	needLog(t)
	logger, await := ringtest.Logger(t)
	base := &logBase{vfs.Find("os"), &failFS{FS: disk.OS, awaitLog: await}}
	vfs.Register("base-"+t.Name(), base)
	t.Cleanup(func() { vfs.Unregister("base-" + t.Name()) })
	return register(t, Options{Base: "base-" + t.Name(), GroupLog: On, Logger: logger}), base.fs
}

// failing makes four databases in one directory whose log fails on request. It returns a
// function that commits a row to one of them.
func failing(t *testing.T) (fsys *failFS, dir string, commit func(db int) error) {
	t.Helper()
	name, fsys := withWholeLog(t)
	dir = t.TempDir()
	var conns []*sqlite3.Conn
	for i := range 4 {
		c := connect(t, filepath.Join(dir, fmt.Sprint(i)), name)
		execSQL(t, c, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t(v); INSERT INTO t VALUES('first')")
		if s := query(t, c, "PRAGMA ringside"); !strings.Contains(s, `"groupLog":"on"`) {
			t.Fatal(s)
		}
		conns = append(conns, c)
	}
	return fsys, dir, func(db int) error { return conns[db].Exec("INSERT INTO t VALUES(randomblob(2000))") }
}

// TestLogWithoutRoom commits more than the log can take, on a full disk.
// Promise: sqlitevfs/failure-log-wal
func TestLogWithoutRoom(t *testing.T) {
	fsys, dir, commit := failing(t)
	fsys.set(func(op, name string, off int64) error {
		if op == "write" && name == logName && off >= 8<<10+2*32<<10 {
			return syscall.ENOSPC
		}
		return nil
	})
	for i := range 200 {
		if err := commit(i % 4); err != nil {
			t.Fatal(i, err)
		}
	}
	for i := range 4 {
		if s := statsOf(filepath.Join(dir, fmt.Sprint(i))); s.GroupLog != "on" || s.Logged == 0 {
			t.Errorf("%+v", s)
		}
	}
	if n := fileSize(t, filepath.Join(dir, logName)); n > 8<<10+2*32<<10 {
		t.Errorf("the log has %d bytes", n)
	}
}

// TestLogFails makes the writes of the log fail for a while. The databases must continue by syncing
// their WALs, and use a log again when possible.
// Promise: sqlitevfs/failure-log-wal
func TestLogFails(t *testing.T) {
	defer func(d time.Duration) { logRetry = d }(logRetry)
	logRetry = 0
	fsys, dir, commit := failing(t)
	commits := func() {
		for i := range 40 {
			if err := commit(i % 4); err != nil {
				t.Fatal(i, err)
			}
		}
	}
	// If only the first write failed, that could be one that makes the log larger.
	fsys.set(func(op, name string, off int64) error {
		if op == "write" && name == logName && off >= 8<<10 {
			return syscall.EIO
		}
		return nil
	})
	commits()
	fsys.awaitLog("sqlitevfs: the log of commits has failed; the WAL is synced instead")
	fsys.set(nil)
	commits()
	for i := range 4 {
		if s := statsOf(filepath.Join(dir, fmt.Sprint(i))); s.GroupLog != "on" {
			t.Error(s)
		}
	}
}

// TestOneWALFails makes the syncs of one WAL fail. Its database must refuse commits, and the others
// must not.
// Promise: sqlitevfs/failure-log-wal
func TestOneWALFails(t *testing.T) {
	fsys, dir, commit := failing(t)
	fsys.set(func(op, name string, off int64) error {
		if op == "sync" && name == "1-wal" {
			return syscall.EIO
		}
		return nil
	})
	failed := 0
	for i := range 400 {
		err := commit(i % 4)
		if i%4 != 1 && err != nil {
			t.Fatal(i, err)
		} else if err != nil {
			failed++
		}
	}
	if failed == 0 {
		t.Error("no commit failed although the WAL cannot be synced")
	}
	fsys.awaitLog("sqlitevfs: sync failed; the database refuses further ones until it is closed")
	for _, i := range []int{0, 2, 3} {
		if s := statsOf(filepath.Join(dir, fmt.Sprint(i))); s.GroupLog != "on" {
			t.Error(s)
		}
	}
}

// TestLogIsRemoved removes and replaces the log while it is in use. The VFS must notice and open
// another one.
// Promise: sqlitevfs/failure-log-wal
func TestLogIsRemoved(t *testing.T) {
	defer func(d time.Duration) { logRetry = d }(logRetry)
	_, dir, commit := failing(t)
	log := filepath.Join(dir, logName)
	for _, how := range []func() error{
		func() error { return os.Remove(log) },
		func() error { return os.Rename(log, log+".moved") },
	} {
		logRetry = time.Hour
		if err := how(); err != nil {
			t.Fatal(err)
		}
		if err := commit(0); err != nil {
			t.Fatal(err)
		}
		if err := commit(0); err != nil {
			t.Fatal(err)
		}
		if s := statsOf(filepath.Join(dir, "0")); !strings.Contains(s.GroupLog, "removed or replaced") {
			t.Error(s)
		}
		logRetry = 0
		for i := range 40 {
			if err := commit(i % 4); err != nil {
				t.Fatal(err)
			}
		}
		if s := statsOf(filepath.Join(dir, "1")); s.GroupLog != "on" || !exists(log) {
			t.Error(s)
		}
	}
}

// TestFailedSyncOfNewLog makes the sync fail that a WAL needs before it uses the log. That commit
// and all later ones must fail.
// Promise: sqlitevfs/disk-error-fails
func TestFailedSyncOfNewLog(t *testing.T) {
	fsys, dir, _ := failing(t)
	c := connect(t, filepath.Join(dir, "new"), "test-"+t.Name())
	execSQL(t, c, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL")
	failed := 0
	fsys.set(func(op, name string, off int64) error {
		if op == "sync" && name == "new-wal" && failed == 0 {
			failed++
			return syscall.EIO
		}
		return nil
	})
	for i := range 3 {
		if err := c.Exec("CREATE TABLE IF NOT EXISTS t(v); INSERT INTO t VALUES(1)"); err == nil && failed > 0 {
			t.Errorf("commit %d succeeded after a failed sync", i)
		}
	}
	if failed == 0 {
		t.Error("the WAL was not synced for the log")
	}
}

// TestCheckpointSyncsTheWALFirst checkpoints without any sync by SQLite, when commits are
// durable only in the log: the WAL is durable before the database is written. If it cannot
// be synced, the checkpoint fails and the pages of the database do not change.
func TestCheckpointSyncsTheWALFirst(t *testing.T) {
	fsys, dir, commit := failing(t)
	name := "test-" + t.Name()
	for _, k := range []struct {
		what string
		fail bool
		db   int
	}{{"the sync succeeds", false, 0}, {"the sync fails", true, 1}} {
		path := filepath.Join(dir, fmt.Sprint(k.db))
		logged := statsOf(path).Logged
		for range 3 {
			if err := commit(k.db); err != nil {
				t.Fatal(err)
			}
		}
		if statsOf(path).Logged == logged {
			t.Fatal("no commit was logged")
		}
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		// Before that SQLite allocates space behind the pages.
		written := func() bool {
			p, err := os.ReadFile(path)
			if err != nil {
				t.Error(err)
			}
			return !bytes.HasPrefix(p, before) || bytes.Trim(p[len(before):], "\x00") != nil
		}
		synced := false
		fsys.set(func(op, name string, off int64) error {
			if op != "sync" || name != fmt.Sprint(k.db)+suffixWAL {
				return nil
			}
			if !synced && written() {
				t.Errorf("%s: the database was written before the sync", k.what)
			}
			synced = true
			if k.fail {
				return syscall.EIO
			}
			return nil
		})
		c := connect(t, path, name)
		err = c.Exec("PRAGMA synchronous=OFF; PRAGMA wal_checkpoint(FULL)")
		fsys.set(nil)
		if w := written(); !synced || (err != nil) != k.fail || w == k.fail {
			t.Errorf("%s: synced %v, checkpoint %v, the database was written: %v", k.what, synced, err, w)
		}
		if err := commit(k.db); (err != nil) != k.fail {
			t.Errorf("%s: the next commit: %v", k.what, err)
		}
	}
}

// TestDeletedWhileOpen deletes a database while a connection to it is open, and makes another one
// in its place. The log must not take syncs of the deleted WAL for syncs of the new one.
// Promise: sqlitevfs/commits-log-replayed
func TestDeletedWhileOpen(t *testing.T) {
	name, _ := withWholeLog(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	open := func(path string) *sqlite3.Conn {
		c := connect(t, path, name)
		execSQL(t, c, "CREATE TABLE t(v); PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=0")
		execSQL(t, c, "INSERT INTO t VALUES(1); INSERT INTO t VALUES(2)")
		return c
	}
	open(path)
	for _, suffix := range []string{"", suffixWAL, "-shm"} {
		if err := os.Remove(path + suffix); err != nil {
			t.Fatal(err)
		}
	}
	synced := int64(walHeaderSize) // bytes of the new WAL that a sync has made durable
	c := open(path)
	for range 3 {
		before := statsOf(path).Logged
		execSQL(t, c, "INSERT INTO t VALUES(3)")
		if statsOf(path).Logged == before {
			synced = fileSize(t, path+suffixWAL)
		}
	}
	other := open(filepath.Join(dir, "b"))
	for range 200 { // the log reuses its space
		execSQL(t, other, "INSERT INTO t VALUES(randomblob(2000))")
	}
	// The power is cut.
	to := t.TempDir()
	for _, file := range []string{"a", "a" + suffixWAL, logName} {
		p, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, suffixWAL) {
			p = p[:synced]
		}
		if err := os.WriteFile(filepath.Join(to, file), p, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	wantQuery(t, connect(t, filepath.Join(to, "a"), Name), "SELECT count(*) FROM t", "5")
}

// TestDetachedMeanwhile makes the log fail during a commit, and detaches the WAL before the commit
// has synced it instead, as another connection to the database may do.
// Promise: sqlitevfs/failure-log-wal
func TestDetachedMeanwhile(t *testing.T) {
	name, fsys := withWholeLog(t)
	path := dbFile(t)
	c := connect(t, path, name)
	execSQL(t, c, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t(v); INSERT INTO t VALUES(1)")
	var log *sharedLog
	fsys.lookup = func() error {
		fsys.lookup = nil
		known.each(func(v *ringVFS) {
			if db := v.dbs.open[path]; db != nil {
				c := &db.commits
				if err := c.wal.Close(); err != nil {
					t.Error(err)
				}
				log, c.wal, c.log = c.log, nil, nil
			}
		})
		return syscall.ENOENT
	}
	execSQL(t, c, "INSERT INTO t VALUES(2)")
	if log == nil {
		t.Fatal("the commit did not use the log")
	}
	if err := log.release(); err != nil {
		t.Error(err)
	}
	execSQL(t, c, "INSERT INTO t VALUES(3)")
}

// TestFailedLogIsNotKept has a database that used the log before and has no WAL any more. It must not
// prevent that the others open the log again after a failure.
// Promise: sqlitevfs/failure-log-wal
func TestFailedLogIsNotKept(t *testing.T) {
	defer func(d time.Duration) { logRetry = d }(logRetry)
	logRetry = 0
	name, fsys := withWholeLog(t)
	dir := t.TempDir()
	open := func(file string) *sqlite3.Conn {
		c := connect(t, filepath.Join(dir, file), name)
		execSQL(t, c, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t(v); INSERT INTO t VALUES(1)")
		return c
	}
	execSQL(t, open("idle"), "PRAGMA journal_mode=DELETE")
	c := open("a")
	failed := false
	fsys.lookup = func() error {
		if failed {
			return nil
		}
		failed = true
		return syscall.EIO
	}
	for range 5 {
		execSQL(t, c, "INSERT INTO t VALUES(2)")
	}
	if s := statsOf(filepath.Join(dir, "a")); !failed || s.GroupLog != "on" {
		t.Errorf("failed %v, %+v", failed, s)
	}
}

// TestDirectoryOfWALThatCannotBeSynced commits to a database in a directory that may not be read. As
// without the log, the entry of its WAL is then not made durable, and commits sync the WAL.
func TestDirectoryOfWALThatCannotBeSynced(t *testing.T) {
	name, fsys := withWholeLog(t)
	dir := t.TempDir()
	commit := func(file string) {
		t.Helper()
		c := connect(t, filepath.Join(dir, file), name)
		execSQL(t, c, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t(v); INSERT INTO t VALUES(1)")
		execSQL(t, c, "INSERT INTO t VALUES(2)")
	}
	commit("first") // makes the log
	for _, errno := range []syscall.Errno{syscall.EACCES, syscall.EINVAL} {
		fsys.set(func(op, _ string, _ int64) error {
			if op == "syncdir" {
				return &os.PathError{Op: "open", Path: dir, Err: errno}
			}
			return nil
		})
		file := fmt.Sprint(int(errno))
		commit(file)
		if s := statsOf(filepath.Join(dir, file)); s.Logged != 0 || !strings.HasPrefix(s.GroupLog, "off: ") {
			t.Errorf("%v: %+v", errno, s)
		}
	}
	fsys.set(nil)
}

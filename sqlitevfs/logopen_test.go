// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
	"github.com/ringside-io/ringside/sqlitevfs/internal/grouplog"
)

const logName = "ringside-wal.log"

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestLogIsMadeForACommit opens, reads and writes without any need for the log.
func TestLogIsMadeForACommit(t *testing.T) {
	needLog(t)
	path := dbFile(t)
	log := filepath.Join(filepath.Dir(path), logName)
	none := func(after string) {
		t.Helper()
		if exists(log) || exists(log+".new") {
			t.Fatalf("the log exists after %s", after)
		}
	}
	if c, err := sqlite3.Open(uri(path, NameLog, "mode", "rw")); err == nil {
		c.Close()
		t.Error("a missing database was opened")
	}
	none("a failed open")
	c := connect(t, path, NameLog)
	execSQL(t, c, "PRAGMA synchronous=FULL; CREATE TABLE t(v); INSERT INTO t VALUES(1)")
	none("commits with a rollback journal")
	stock := connect(t, path, "os")
	execSQL(t, stock, "PRAGMA journal_mode=WAL; INSERT INTO t VALUES(2)")
	wantQuery(t, c, "SELECT count(*) FROM t", "2")
	none("reading a WAL")
	ro := connect(t, path, NameLog, "mode", "ro")
	wantQuery(t, ro, "SELECT count(*) FROM t", "2")
	none("opening to read only")
	execSQL(t, c, "PRAGMA synchronous=NORMAL; INSERT INTO t VALUES(3)")
	none("a commit with synchronous=NORMAL")
	execSQL(t, c, "PRAGMA synchronous=FULL; BEGIN; INSERT INTO t VALUES(4); ROLLBACK")
	none("a transaction that was rolled back")
	execSQL(t, c, "INSERT INTO t VALUES(5)")
	if !exists(log) {
		t.Error("the log does not exist after a commit")
	}
	before := statsOf(path).Logged
	execSQL(t, c, "INSERT INTO t VALUES(6)")
	if statsOf(path).Logged != before+1 {
		t.Error("the next commit was not logged:", statsOf(path))
	}
}

// TestReadOnlyOpen opens a database read-only before its log was replayed: it is refused
// where commits are missing, and no file is changed.
func TestReadOnlyOpen(t *testing.T) {
	needLog(t)
	path := dbFile(t)
	acked := committer(t, path, 20)()
	files := func() (all [][]byte) {
		for _, name := range []string{path, path + "-wal", filepath.Join(filepath.Dir(path), logName)} {
			p, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, p)
		}
		return all
	}
	count := func(c *sqlite3.Conn) {
		t.Helper()
		if n, _ := strconv.Atoi(query(t, c, "SELECT count(*) FROM t")); n < acked {
			t.Errorf("%d rows, %d were committed", n, acked)
		}
	}
	before := files()
	// The process ended, and the page cache has the data that it wrote.
	c, err := sqlite3.Open(uri(path, Name, "mode", "ro"))
	if err != nil {
		t.Fatal(err)
	}
	count(c)
	c.Close()
	if err := os.Truncate(path+"-wal", int64(len(before[1])/2)); err != nil {
		t.Fatal(err)
	}
	before = files()
	for _, name := range []string{Name, NameLog} {
		c, err := sqlite3.Open(uri(path, name, "mode", "ro"))
		if !errors.Is(err, sqlite3.READONLY_RECOVERY) {
			t.Errorf("%s: opened read-only: %v", name, err)
		}
		if err == nil {
			c.Close()
		}
	}
	for i, p := range files() {
		if !bytes.Equal(p, before[i]) {
			t.Errorf("file %d was changed", i)
		}
	}
	count(connect(t, path, Name))
	count(connect(t, path, Name, "mode", "ro"))
}

// TestLogReports inspects, replays and salvages the log of a crashed directory: the reports
// have every commit, and only an inspection changes nothing.
func TestLogReports(t *testing.T) {
	dir := crashedTenants(t)
	log := filepath.Join(dir, logName)
	wal := func(i int) string { return filepath.Join(dir, strconv.Itoa(i)+suffixWAL) }
	inspect := func() LogReport {
		t.Helper()
		r, err := InspectLog(dir)
		if err != nil || r.Path != log || r.Size != fileSize(t, log) || r.InUse {
			t.Errorf("%+v, %v", r, err)
		}
		return r
	}
	for range 2 {
		r := inspect()
		if r.Commits != 9 || r.Missing != 9 || r.Closed || !r.Sound() || len(r.WALs) != 3 {
			t.Errorf("after the crash: %+v", r)
		}
		for i, w := range r.WALs {
			if w.Path != wal(i) || w.Commits != 3 || w.Missing != 3 || w.Present != 0 || w.Lost != 0 || w.Bytes == 0 {
				t.Errorf("WAL %d: %+v", i, w)
			}
		}
	}
	// A database whose WAL cannot be written prevents the log from being emptied.
	restore := replaceWAL(t, filepath.Join(dir, "1"), os.Symlink)
	refused := func(r LogReport) {
		t.Helper()
		if r.Sound() || len(r.Refused) != 1 || r.Refused[0].WAL != wal(1) || r.Refused[0].Commits != 3 || r.Refused[0].Reason == "" {
			t.Errorf("a WAL that is a link: %+v", r)
		}
	}
	r := inspect()
	refused(r)
	if i := slices.IndexFunc(r.WALs, func(w LogWAL) bool { return w.Path == wal(1) }); i < 0 || r.WALs[i].Lost != 3 {
		t.Errorf("its commits are not lost: %+v", r.WALs)
	}
	r, err := ReplayLog(dir)
	if err != nil || r.Commits != 9 || r.Missing != 6 {
		t.Errorf("replay: %+v, %v", r, err)
	}
	refused(r)
	if r, aside, err := SalvageLog(dir); err == nil || aside != "" || !exists(log) {
		t.Errorf("salvage while a WAL is a link: %+v, %q, %v", r, aside, err)
	}
	restore()
	// The first commit of a database is damaged, and the others depend on it.
	p, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	p[bytes.Index(p, []byte("1-wal"))+1000] ^= 1
	if err := os.WriteFile(log, p, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := inspect(); r.Sound() || len(r.Damage) != 1 || len(r.Refused) != 1 || r.Refused[0].WAL != wal(1) {
		t.Errorf("damaged: %+v", r)
	}
	r, aside, err := SalvageLog(dir)
	if err != nil || aside != log+".salvaged-1" || !exists(aside) || exists(log) {
		t.Errorf("salvage: %+v, %q, %v", r, aside, err)
	}
	if r.Sound() || len(r.Damage) != 1 || len(r.Skipped) == 0 || r.Skipped[0].WAL != wal(1) || r.Skipped[0].Reason == "" {
		t.Errorf("salvage does not report the lost commits: %+v", r)
	}
	for i, want := range []int{3, 0, 3} {
		if n, err := countRows(filepath.Join(dir, strconv.Itoa(i)), Name); n != want || err != nil {
			t.Errorf("database %d: %d rows, %v", i, n, err)
		}
	}
	if _, err := InspectLog(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("afterwards: %v", err)
	}
	if _, err := ReplayLog(filepath.Join(dir, "missing")); err == nil {
		t.Error("a missing directory was replayed")
	}
}

// TestNormalNeedsNoLog has a connection that syncs the WAL only for checkpoints, and then one that syncs each
// commit of the same database.
func TestNormalNeedsNoLog(t *testing.T) {
	needLog(t)
	for _, psow := range []string{"1", "0"} {
		path := dbFile(t)
		c := connect(t, path, NameLog, "psow", psow)
		execSQL(t, c, "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA wal_autocheckpoint=200; CREATE TABLE t(x)")
		for range 1000 {
			execSQL(t, c, "INSERT INTO t VALUES(randomblob(100))")
		}
		log := filepath.Join(filepath.Dir(path), logName)
		if exists(log) {
			t.Errorf("psow=%s: a log that no commit uses was created", psow)
		}
		execSQL(t, c, "PRAGMA synchronous=FULL; INSERT INTO t VALUES(0); INSERT INTO t VALUES(1)")
		if !exists(log) {
			t.Errorf("psow=%s: no log was created for commits that are synced", psow)
		}
	}
}

// TestFirstConnectionDecides opens a database with other parameters while it is open.
func TestFirstConnectionDecides(t *testing.T) {
	path := dbFile(t)
	connect(t, path, Name)
	c := connect(t, path, Name, paramGroupLog, "on")
	execSQL(t, c, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t(v); INSERT INTO t VALUES(1)")
	if s := statsOf(path); s.GroupLog != "off" {
		t.Error("the parameters of the second connection are used:", s)
	}
}

// largeLog has a log that keeps all commits of a test.
type largeLog struct{ *logBase }

func (b largeLog) GroupLog() grouplog.Options { return grouplog.Options{FS: b.fs} }

// TestEmptyLogIsReadOnce: a log without commits is not read again for each database that is opened, until it has changed.
// Then another process has left commits there.
func TestEmptyLogIsReadOnce(t *testing.T) {
	needLog(t)
	fsys := &failFS{FS: disk.OS}
	base := "base-" + t.Name()
	vfs.Register(base, largeLog{&logBase{vfs.Find("os"), fsys}})
	t.Cleanup(func() { vfs.Unregister(base) })
	name := register(t, Options{Base: base, GroupLog: On})
	defer func(d time.Duration) { clockStep = d }(clockStep)
	clockStep = 0
	dir := t.TempDir()
	path := filepath.Join(dir, "other")
	c := connect(t, path, name)
	execSQL(t, c, "PRAGMA journal_mode=wal; PRAGMA synchronous=full; CREATE TABLE t(x)")
	for range 3 {
		execSQL(t, c, "INSERT INTO t VALUES(1)")
	}
	c.Close()
	read := func() int64 {
		before := fsys.opens.Load()
		if n, err := countRows(path, name); err != nil || n != 3 {
			t.Fatalf("%d rows, %v", n, err)
		}
		return fsys.opens.Load() - before
	}
	if n := read(); n == 0 {
		t.Fatal("the log was not opened")
	}
	if n := read(); n > 0 {
		t.Errorf("the log was opened %d times again", n)
	}
	crashTenants(t, dir)
	for i := range 3 {
		if n, err := countRows(filepath.Join(dir, fmt.Sprint(i)), name); err != nil || n != 3 {
			t.Errorf("database %d: %d rows, %v", i, n, err)
		}
	}
}

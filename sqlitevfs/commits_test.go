// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// logEnv names the database that a test binary commits to until it is killed.
const (
	logEnv  = "RINGSIDE_TEST_LOG_DB"
	rowsEnv = "RINGSIDE_TEST_LOG_ROWS"
	dirEnv  = "RINGSIDE_TEST_LOG_DIR"
)

// commitUntilKilled commits rows and prints their number.
func commitUntilKilled(t *testing.T, path string) {
	rows, _ := strconv.Atoi(os.Getenv(rowsEnv))
	c := connect(t, path, NameLog, paramLogDir, os.Getenv(dirEnv))
	execSQL(t, c, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t(id INTEGER PRIMARY KEY, v)")
	for i := range rows {
		execSQL(t, c, "INSERT INTO t(v) VALUES(randomblob(100))")
		fmt.Println("committed", i+1)
	}
	io.Copy(io.Discard, os.Stdin)
}

// committer starts a process that commits to a database with the log, and returns after it
// has committed n rows.
func committer(t *testing.T, path string, n int) (stop func() int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestLogReplay$")
	cmd.Env = append(os.Environ(), logEnv+"="+path, fmt.Sprint(rowsEnv, "=", n))
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	acked := 0
	next := func() bool {
		if !lines.Scan() {
			return false
		}
		if text, ok := strings.CutPrefix(lines.Text(), "committed "); ok {
			acked, _ = strconv.Atoi(text)
		}
		return true
	}
	for acked < n && next() {
	}
	if acked < n {
		t.Fatalf("the process ended after %d commits", acked)
	}
	return sync.OnceValue(func() int {
		cmd.Process.Kill()
		for next() {
		}
		if err := cmd.Wait(); err == nil {
			t.Error("the process ended by itself")
		}
		return acked
	})
}

// TestLogReplay kills a process and discards what its WAL never synced: a VFS without the
// log finds all commits.
func TestLogReplay(t *testing.T) {
	if path := os.Getenv(logEnv); path != "" {
		commitUntilKilled(t, path)
	}
	needLog(t)
	for _, name := range []string{Name, NameLog, NamePlain} {
		path := dbFile(t)
		acked := committer(t, path, 20)()
		// The first commit, of two pages, found no log yet and synced the WAL.
		if err := os.Truncate(path+"-wal", walHeaderSize+2*(frameHeaderSize+4096)); err != nil {
			t.Fatal(err)
		}
		c := connect(t, path, name)
		if n, _ := strconv.Atoi(query(t, c, "SELECT count(*) FROM t")); n < acked {
			t.Errorf("%s: %d rows, %d were committed", name, n, acked)
		}
		wantQuery(t, c, "PRAGMA integrity_check", "ok")
	}
}

// TestLogElsewhere kills a process whose log is in another directory, and discards what its
// WAL never synced. Without that log the database is refused until it was opened with it,
// or until its commits are given up. A log in the database's own directory is replayed as
// well.
// Promise: sqlitevfs/database-whose-log
func TestLogElsewhere(t *testing.T) {
	needLog(t)
	lostAt := func(t *testing.T, path, env string) (_ string, acked int) {
		t.Setenv(dirEnv, env)
		acked = committer(t, path, 20)()
		if err := os.Truncate(path+"-wal", walHeaderSize+2*(frameHeaderSize+4096)); err != nil {
			t.Fatal(err)
		}
		return path, acked
	}
	lost := func(t *testing.T, env string) (path string, acked int) { return lostAt(t, dbFile(t), env) }
	want := func(path string, acked int, params ...string) {
		t.Helper()
		c := connect(t, path, Name, params...)
		if n, _ := strconv.Atoi(query(t, c, "SELECT count(*) FROM t")); n < acked {
			t.Errorf("%d rows, %d were committed", n, acked)
		}
		wantQuery(t, c, "PRAGMA integrity_check", "ok")
		c.Close()
	}
	refused := func(path, reason string, params ...string) {
		t.Helper()
		if c, err := sqlite3.Open(uri(path, Name, params...)); err == nil {
			c.Close()
			t.Error("a database that lacks commits was not refused")
		} else if !errors.Is(err, sqlite3.CANTOPEN) || !strings.Contains(err.Error(), reason) {
			t.Error(err)
		}
	}
	t.Run("named", func(t *testing.T) {
		dir := t.TempDir()
		path, acked := lost(t, dir)
		refused(path, dir)
		refused(path, dir, "mode", "ro")
		refused(path, dir, paramLogDir, t.TempDir())
		want(path, acked, paramLogDir, dir)
		want(path, acked)
	})
	t.Run("replayed there", func(t *testing.T) {
		dir := t.TempDir()
		path, acked := lost(t, dir)
		if r, err := ReplayLog(dir); err != nil || r.Missing == 0 {
			t.Errorf("%+v, %v", r, err)
		}
		want(path, acked)
	})
	t.Run("missing", func(t *testing.T) {
		dir := t.TempDir()
		path, _ := lost(t, dir)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		pointer := path + "-wal.log"
		refused(path, "remove "+pointer)
		if err := os.Remove(pointer); err != nil {
			t.Fatal(err)
		}
		want(path, 0)
	})
	t.Run("missing although it is named", func(t *testing.T) {
		dir := t.TempDir()
		path, _ := lost(t, dir)
		if err := os.Remove(filepath.Join(dir, logName)); err != nil {
			t.Fatal(err)
		}
		pointer := path + "-wal.log"
		refused(path, "remove "+pointer, paramLogDir, dir)
		// Another database makes another log.
		c := connect(t, dbFile(t), NameLog, paramLogDir, dir)
		execSQL(t, c, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t(v); INSERT INTO t VALUES(1)")
		refused(path, "remove "+pointer, paramLogDir, dir)
		refused(path, "remove "+pointer)
		c.Close()
		refused(path, "remove "+pointer, paramLogDir, dir)
		if err := os.Remove(pointer); err != nil {
			t.Fatal(err)
		}
		want(path, 0, paramLogDir, dir)
	})
	t.Run("moved together", func(t *testing.T) {
		parent := filepath.Join(t.TempDir(), "all")
		dir, data := filepath.Join(parent, "log"), filepath.Join(parent, "data")
		link := filepath.Join(t.TempDir(), "link")
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.Mkdir(data, 0o700), os.Symlink(dir, link)); err != nil {
			t.Fatal(err)
		}
		path, acked := lostAt(t, filepath.Join(data, "a"), link)
		to := filepath.Join(t.TempDir(), "deeper", "moved")
		if err := errors.Join(os.Mkdir(filepath.Dir(to), 0o700), os.Rename(parent, to)); err != nil {
			t.Fatal(err)
		}
		path = filepath.Join(to, "data", filepath.Base(path))
		refused(path, to)
		want(path, acked, paramLogDir, filepath.Join(to, "log"))
	})
	t.Run("salvaged", func(t *testing.T) {
		dir := t.TempDir()
		path, acked := lost(t, dir)
		if _, _, err := SalvageLog(dir); err != nil {
			t.Fatal(err)
		}
		want(path, acked, paramLogDir, dir)
	})
	t.Run("own directory", func(t *testing.T) {
		path, acked := lost(t, "")
		want(path, acked, paramLogDir, t.TempDir())
	})
}

// TestLogOfManyDirectories commits to databases in different directories by one log.
// Promise: sqlitevfs/database-whose-log
func TestLogOfManyDirectories(t *testing.T) {
	needLog(t)
	dir := t.TempDir()
	var conns []*sqlite3.Conn
	var paths []string
	for range 3 {
		path := dbFile(t)
		c := connect(t, path, NameLog, paramLogDir, dir)
		execSQL(t, c, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t(v); INSERT INTO t VALUES(1)")
		if statsOf(path).Logged == 0 {
			t.Error(statsOf(path))
		}
		if exists(filepath.Join(filepath.Dir(path), logName)) || !exists(path+"-wal.log") {
			t.Error("the log is in the directory of the database, or the directory has no pointer to it")
		}
		conns, paths = append(conns, c), append(paths, path)
	}
	for i, c := range conns {
		c.Close()
		if exists(paths[i] + "-wal.log") {
			t.Error("a closed database has a pointer")
		}
	}
}

// TestLogOfAnotherProcess commits while another process has the log, and uses the log when
// that process has ended.
func TestLogOfAnotherProcess(t *testing.T) {
	needLog(t)
	defer func(d time.Duration) { logRetry = d }(logRetry)
	logRetry = 0
	path := dbFile(t)
	stop := committer(t, path, 5)
	defer stop()
	c := connect(t, path, NameLog)
	execSQL(t, c, "PRAGMA synchronous=FULL; CREATE TABLE o(v)")
	for range 20 {
		execSQL(t, c, "INSERT INTO o VALUES(1)")
	}
	if s := query(t, c, "PRAGMA ringside"); !strings.Contains(s, "off: another process uses the log") {
		t.Error(s)
	}
	acked := stop()
	execSQL(t, c, "INSERT INTO o VALUES(1)")
	if s := query(t, c, "PRAGMA ringside"); !strings.Contains(s, `"groupLog":"on"`) {
		t.Error("afterwards:", s)
	}
	wantQuery(t, c, "SELECT count(*) FROM o", "21")
	if n, _ := strconv.Atoi(query(t, c, "SELECT count(*) FROM t")); n < acked {
		t.Errorf("%d rows, %d were committed", n, acked)
	}
	wantQuery(t, c, "PRAGMA integrity_check", "ok")
}

// TestCommitsWithoutTheLogShareSyncs commits to databases in different directories, more at
// a time than the log accepts.
// Promise: sqlitevfs/log-commits-left
func TestCommitsWithoutTheLogShareSyncs(t *testing.T) {
	needLog(t)
	var paths []string
	var conns []*sqlite3.Conn
	for range 8 {
		path := dbFile(t)
		c := connect(t, path, NameLog, "groupsync", "on")
		execSQL(t, c, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=0; CREATE TABLE t(v)")
		if s := query(t, c, "PRAGMA ringside"); !strings.Contains(s, `"groupLog":"on"`) {
			t.Fatal(s)
		} else if !strings.Contains(s, `"groupSync":"on"`) {
			t.Skip("group sync is not available here:", s)
		}
		paths, conns = append(paths, path), append(conns, c)
	}
	shared := func() (n uint64) {
		for _, path := range paths {
			n += statsOf(path).SharedSyncs
		}
		return n
	}
	var wg sync.WaitGroup
	for _, c := range conns {
		wg.Go(func() {
			for range 1000 {
				if err := c.Exec("INSERT INTO t VALUES(zeroblob(100000)); DELETE FROM t"); err != nil {
					t.Error(err)
					return
				}
				if shared() > 0 {
					return
				}
			}
		})
	}
	wg.Wait()
	if shared() == 0 {
		t.Error("no sync was shared")
	}
}

// TestLoneCommits commits with one connection: by the log while the WAL grows, and by syncs where frames
// are overwritten.
// Promise: sqlitevfs/log-commits-left
func TestLoneCommits(t *testing.T) {
	needLog(t)
	path := dbFile(t)
	c := connect(t, path, NameLog)
	execSQL(t, c, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t(v)")
	commits := func(what string, logged bool) {
		t.Helper()
		before := statsOf(path).Logged
		for range 10 {
			execSQL(t, c, "INSERT INTO t VALUES(1)")
		}
		if n := statsOf(path).Logged - before; logged && n < 8 || !logged && n > 0 {
			t.Errorf("%s: %d of 10 commits are in the log", what, n)
		}
	}
	commits("a new WAL", true)
	commits("a new WAL", true)
	query(t, c, "PRAGMA wal_checkpoint(RESTART)")
	commits("a WAL that is used again", false)
	commits("a WAL that is used again, to its end", false)
	commits("behind the end", true)
	query(t, c, "PRAGMA wal_checkpoint(TRUNCATE)")
	commits("a WAL that was emptied", true)
}

// TestLogShared commits to the databases of one directory by several connections each,
// while they are checkpointed.
func TestLogShared(t *testing.T) {
	name, _ := withWholeLog(t)
	dir := t.TempDir()
	rows := 60
	if testing.Short() {
		rows = 10
	}
	var wg sync.WaitGroup
	for db := range 4 {
		path := filepath.Join(dir, fmt.Sprint(db, ".db"))
		first := connect(t, path, name)
		execSQL(t, first, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=20; CREATE TABLE t(id INTEGER PRIMARY KEY, v)")
		for range 2 {
			wg.Go(func() {
				if err := insert(path, name, rows); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	logged := uint64(0)
	for _, s := range Databases() {
		if filepath.Dir(s.Path) == dir {
			logged += s.Logged
			if s.GroupLog != "on" {
				t.Error(s)
			}
		}
	}
	if logged < uint64(4*2*rows/2) {
		t.Errorf("%d commits went through the log", logged)
	}
	for db := range 4 {
		c := connect(t, filepath.Join(dir, fmt.Sprint(db, ".db")), "os")
		wantQuery(t, c, "SELECT count(*) FROM t", strconv.Itoa(2*rows))
		wantQuery(t, c, "PRAGMA integrity_check", "ok")
	}
}

func insert(path, name string, rows int) error {
	c, err := sqlite3.Open(uri(path, name))
	if err != nil {
		return err
	}
	defer c.Close()
	err = c.Exec("PRAGMA busy_timeout=60000; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=20")
	for range rows {
		if err == nil {
			err = c.Exec("INSERT INTO t(v) VALUES(randomblob(200))")
		}
	}
	return err
}

// needLog skips a test where a log of commits is not possible.
func needLog(t *testing.T) {
	t.Helper()
	c := connect(t, dbFile(t), NameLog)
	execSQL(t, c, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t(v)")
	if s := query(t, c, "PRAGMA ringside"); !strings.Contains(s, `"groupLog":"on"`) {
		t.Skip("no log of commits: ", s)
	}
}

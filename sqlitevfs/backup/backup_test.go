// SPDX-License-Identifier: MIT

package backup

import (
	"context"
	"database/sql"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/ncruces/go-sqlite3/driver"

	_ "github.com/ringside-io/ringside/sqlitevfs"
)

// modes are the ways in which commits become durable.
var modes = []string{
	"vfs=ringside&_pragma=journal_mode(wal)&_pragma=synchronous(full)",
	"vfs=ringside&_pragma=journal_mode(wal)&_pragma=synchronous(normal)",
	"vfs=ringside-log&_pragma=journal_mode(wal)&_pragma=synchronous(full)",
	"vfs=ringside-log&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=wal_autocheckpoint(20)",
	"vfs=ringside&_pragma=journal_mode(wal)&_pragma=locking_mode(exclusive)&_pragma=synchronous(full)",
	"vfs=ringside&_pragma=journal_mode(delete)",
	"vfs=ringside-group&_pragma=journal_mode(persist)",
	"vfs=ringside&_pragma=journal_mode(truncate)&_pragma=locking_mode(exclusive)",
	"vfs=ringside&_pragma=journal_mode(memory)",
	"vfs=ringside&_pragma=journal_mode(delete)&atomic4k=trust",
}

func open(t testing.TB, path, mode string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(30000)&"+mode)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(`CREATE TABLE IF NOT EXISTS rows(id INTEGER PRIMARY KEY, body BLOB);
		CREATE TABLE IF NOT EXISTS count(n INTEGER); INSERT INTO count SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM count)`); err != nil {
		t.Fatal(err)
	}
	return db
}

// commit makes one commit. Some are large, some spill, some are rolled back to a savepoint.
func commit(db *sql.DB, i int) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	size := 200
	if i%25 == 24 {
		size = 100_000
	}
	if i%10 == 3 {
		if _, err := tx.Exec(`SAVEPOINT s; INSERT INTO rows(body) SELECT randomblob(9000) FROM rows LIMIT 40; ROLLBACK TO s; RELEASE s`); err != nil {
			return err
		}
	}
	if _, err := tx.Exec("INSERT INTO rows(body) VALUES(randomblob(?))", size); err != nil {
		return err
	}
	if _, err := tx.Exec("UPDATE count SET n = n + 1; UPDATE rows SET body = randomblob(300) WHERE id % 17 = 3"); err != nil {
		return err
	}
	return tx.Commit()
}

// memoryDir returns a directory in memory, if there is one.
func memoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "ringside-backup-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// content checks a database by stock SQLite, if there is one, and returns the number of commits and all rows.
func content(t testing.TB, path string) (n int, all string) {
	t.Helper()
	if exe, err := exec.LookPath("sqlite3"); err == nil {
		out, err := exec.Command(exe, "-readonly", path, "PRAGMA integrity_check").CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != "ok" {
			t.Fatalf("sqlite3: %s: %v", out, err)
		}
	}
	db, err := sql.Open("sqlite3", "file:"+path+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var rows int
	var ok string
	err = db.QueryRow(`SELECT (SELECT count(*) FROM rows), n, (SELECT coalesce(group_concat(hex(body)), '') FROM (SELECT * FROM rows ORDER BY id)),
		(SELECT * FROM pragma_integrity_check) FROM count`).Scan(&rows, &n, &all, &ok)
	if err != nil || rows != n || ok != "ok" {
		t.Fatalf("%s: %d rows, a count of %d, %s, %v", path, rows, n, ok, err)
	}
	return n, all
}

func start(t testing.TB, dir string, to Target, change func(*Options)) *Backup {
	t.Helper()
	o := Options{Dir: dir, Target: to, Interval: 5 * time.Millisecond, Scratch: memoryDir(t), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if change != nil {
		change(&o)
	}
	b, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func synced(t testing.TB, b *Backup) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := b.Sync(ctx); err != nil {
		t.Fatal(err)
	}
}

func restored(t testing.TB, to Target, name string) string {
	t.Helper()
	path := filepath.Join(memoryDir(t), filepath.Base(name))
	if _, err := Restore(t.Context(), to, name, path, RestoreOptions{}); err != nil {
		t.Fatal(err)
	}
	return path
}

// same compares the restored database with the original, in which commits rows were committed.
func same(t testing.TB, to Target, name, path string, commits int) {
	t.Helper()
	got, all := content(t, restored(t, to, name))
	if n, want := content(t, path); got != n || all != want {
		t.Errorf("restored %d commits, want %d", got, n)
	}
	if got != commits {
		t.Errorf("restored %d commits of %d", got, commits)
	}
}

// TestCommitBehindSnapshot commits before and after a snapshot is taken for which earlier commits wait. Sync waits for the
// later commit too.
func TestCommitBehindSnapshot(t *testing.T) {
	dir := t.TempDir()
	db := open(t, filepath.Join(dir, "tenant.db"), modes[0])
	defer db.Close()
	b := start(t, dir, Dir(t.TempDir()), func(o *Options) { o.Interval = time.Hour })
	b.mu.Lock()
	d := b.dbs["tenant.db"]
	b.mu.Unlock()
	for i := range 2 {
		if err := commit(db, i); err != nil {
			t.Fatal(err)
		}
	}
	s, err := d.snapshot()
	if err == nil {
		err = commit(db, 2)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer s.file.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.epoch <= s.epoch {
		t.Errorf("the snapshot ends epoch %d, the commit behind it waits in %d", s.epoch, d.epoch)
	}
}

// TestCommitsThatNothingFollows: with locking_mode EXCLUSIVE and synchronous NORMAL or OFF SQLite neither syncs after a commit
// nor uses the WAL's index outside of its own memory. The commits reach the target while the database stays open.
//
// Promise: sqlitevfs/backup-restores-committed
func TestCommitsThatNothingFollows(t *testing.T) {
	for _, synchronous := range []string{"normal", "off"} {
		t.Run(synchronous, func(t *testing.T) {
			dir, to := t.TempDir(), Dir(t.TempDir())
			path := filepath.Join(dir, "tenant.db")
			b := start(t, dir, to, nil)
			db := open(t, path, "vfs=ringside&_pragma=journal_mode(wal)&_pragma=locking_mode(exclusive)&_pragma=synchronous("+synchronous+")")
			defer db.Close()
			commits := 0
			for _, n := range []int{1, 3} {
				for range n {
					if err := commit(db, commits); err != nil {
						t.Fatal(err)
					}
					commits++
				}
				arrives(t, b, to, commits)
				if _, err := db.Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// arrives waits until the target has all commits of tenant.db.
func arrives(t *testing.T, b *Backup, to Target, commits int) {
	t.Helper()
	n := 0
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		synced(t, b)
		path := filepath.Join(memoryDir(t), "tenant.db")
		if _, err := Restore(t.Context(), to, "tenant.db", path, RestoreOptions{}); err != nil {
			continue // it has no commit yet
		}
		if n, _ = content(t, path); n == commits {
			return
		}
	}
	t.Fatalf("the target has %d of %d commits", n, commits)
}

// TestModes restores what was committed in each mode, while the database is open, after it was closed, and after it was
// opened again; and the second Backup continues the stream of the first one.
// Promise: sqlitevfs/backup-restores-committed
func TestModes(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			dir, to := t.TempDir(), Dir(t.TempDir())
			path := filepath.Join(dir, "a", "tenant.db")
			if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			commits := 0
			run := func(db *sql.DB, n int) {
				for range n {
					if err := commit(db, commits); err != nil {
						t.Fatal(err)
					}
					commits++
				}
			}
			old := open(t, path, mode) // before the Backup, which finds it
			run(old, 5)
			if strings.Contains(mode, "exclusive") {
				old.Close()
			}
			b := start(t, dir, to, nil)
			if strings.Contains(mode, "exclusive") {
				old = open(t, path, mode)
			}
			for range 2 {
				run(old, 15)
				synced(t, b)
				if !strings.Contains(mode, "exclusive") {
					same(t, to, "a/tenant.db", path, commits)
				}
			}
			run(old, 3)
			old.Close()
			synced(t, b)
			same(t, to, "a/tenant.db", path, commits)
			db := open(t, path, mode)
			run(db, 15)
			synced(t, b)
			db.Close()
			same(t, to, "a/tenant.db", path, commits)
			b.Close()
			snapshots := count(t, to, "a/tenant.db", levelSnapshot)

			b = start(t, dir, to, nil)
			db = open(t, path, mode)
			run(db, 15)
			db.Close()
			synced(t, b)
			same(t, to, "a/tenant.db", path, commits)
			if n := count(t, to, "a/tenant.db", levelSnapshot); n != snapshots {
				t.Errorf("%d snapshots, %d after the second Backup: it has not continued the stream", snapshots, n)
			}
			if snapshots != 1 {
				t.Errorf("%d snapshots, want one", snapshots)
			}
			b.Close()
		})
	}
}

// TestSeveralConnections commits by connections that restart the WAL in turn: the stream goes on without another snapshot.
// Promise: sqlitevfs/backup-restores-committed
func TestSeveralConnections(t *testing.T) {
	for _, mode := range []string{modes[0], modes[2]} {
		dir, to := memoryDir(t), newMemory()
		path := filepath.Join(dir, "x.db")
		dbs := make([]*sql.DB, 3)
		for i := range dbs {
			dbs[i] = open(t, path, mode+"&_pragma=wal_autocheckpoint(8)")
			defer dbs[i].Close()
		}
		b := start(t, dir, to, nil)
		for i := range 60 {
			if err := commit(dbs[i/2%3], i); err != nil {
				t.Fatal(err)
			}
			if i%5 == 4 {
				synced(t, b)
			}
		}
		synced(t, b)
		same(t, to, "x.db", path, 60)
		if n := count(t, to, "x.db", levelSnapshot); n != 1 {
			t.Errorf("%s: %d snapshots", mode, n)
		}
		b.Close()
	}
}

// TestNextBackup has a database that is open while a Backup ends and others start, in the directory and elsewhere.
// Promise: sqlitevfs/backup-restores-committed
func TestNextBackup(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			dir, to := t.TempDir(), newMemory()
			path := filepath.Join(dir, "x.db")
			start(t, t.TempDir(), newMemory(), nil).Close()
			elsewhere := start(t, t.TempDir(), newMemory(), nil)
			db := open(t, path, mode)
			defer db.Close()
			elsewhere.Close()
			n := 0
			for range 3 {
				b := start(t, dir, to, nil)
				if n > 0 { // those that were committed between the Backups, before another one
					synced(t, b)
					if got, _ := content(t, restored(t, to, "x.db")); got != n {
						t.Errorf("before another commit: restored %d commits of %d", got, n)
					}
				}
				for range 4 {
					if err := commit(db, n); err != nil {
						t.Fatal(err)
					}
					n++
				}
				synced(t, b)
				if got, _ := content(t, restored(t, to, "x.db")); got != n {
					t.Errorf("restored %d commits of %d", got, n)
				}
				b.Close()
				if err := commit(db, n); err != nil {
					t.Fatal(err)
				}
				n++
			}
			if r, err := Verify(t.Context(), to, "x.db"); err != nil || len(r.Problems) > 0 {
				t.Errorf("Verify: %v, %v", r.Problems, err)
			}
		})
	}
}

func count(t testing.TB, to Target, name string, level int) (n int) {
	t.Helper()
	files, err := Files(t.Context(), to, name)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Level == level {
			n++
		}
	}
	return n
}

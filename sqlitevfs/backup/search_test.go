// SPDX-License-Identifier: MIT

package backup

import (
	"database/sql"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// closeAsKilled closes a database, and leaves its files as a kill does.
func closeAsKilled(t *testing.T, db *sql.DB, path string) {
	t.Helper()
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(filepath.Dir(path))); err != nil {
		t.Fatal(err)
	}
	db.Close()
	for _, suffix := range []string{"", "-wal"} {
		p, err := os.ReadFile(filepath.Join(copied, filepath.Base(path)+suffix))
		if err == nil {
			err = os.WriteFile(path+suffix, p, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestFindsLaterCommits kills a process after a commit that the newest object does not have. The store says that it got the
// object later than the commit, as it does after a slow request and with another clock; or the commit was
// written before the object was stamped, and its sync ended later. The next Backup stores it, though nothing opens the database.
// Promise: sqlitevfs/backup-finds-databases
func TestFindsLaterCommits(t *testing.T) {
	for name, c := range map[string]struct {
		late  time.Duration // the store's time is later than the object's commits
		early time.Duration // the commit was written before the object's stamp
	}{"store": {late: 10 * time.Minute}, "sync": {early: 500 * time.Millisecond}, "both": {late: time.Second, early: 500 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			dir, to := t.TempDir(), newMemory()
			to.late = c.late
			path := filepath.Join(dir, "a.db")
			db := open(t, path, modes[2])
			b := start(t, dir, to, nil)
			if err := commit(db, 0); err != nil {
				t.Fatal(err)
			}
			synced(t, b)
			b.Close()
			if err := commit(db, 1); err != nil {
				t.Fatal(err)
			}
			closeAsKilled(t, db, path)
			files, err := Files(t.Context(), to, "a.db")
			if err != nil || len(files) == 0 {
				t.Fatal(files, err)
			}
			stamped := time.Time{}
			for _, f := range files {
				if at := f.Time.Add(-c.late); at.After(stamped) {
					stamped = at
				}
			}
			if c.early > 0 {
				at := stamped.Add(-c.early)
				for _, suffix := range []string{"", "-wal"} {
					if err := os.Chtimes(path+suffix, at, at); err != nil {
						t.Fatal(err)
					}
				}
			}
			b = start(t, dir, to, nil)
			synced(t, b)
			b.Close()
			if got, _ := content(t, restored(t, to, "a.db")); got != 2 {
				t.Errorf("restored %d commits of 2", got)
			}
			old := time.Now().Add(-time.Hour)
			for _, suffix := range []string{"", "-wal"} {
				if err := os.Chtimes(path+suffix, old, old); err != nil {
					t.Fatal(err)
				}
			}
			b = start(t, dir, to, nil)
			synced(t, b)
			if n := b.Stats().Databases; n > 0 {
				t.Errorf("%d databases that have not changed were compared", n)
			}
		})
	}
}

// TestFindsDatabases starts a Backup beside databases that nothing opens. The target gets those that it lacks, with the
// commits that only their WAL has, and those that have changed since they were stored; the others are not read.
// Promise: sqlitevfs/backup-finds-databases
func TestFindsDatabases(t *testing.T) {
	dir, to := t.TempDir(), newMemory()
	commits := map[string]int{}
	change := func(name string, keepWAL bool) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		db := open(t, path, modes[2])
		for range 3 {
			if err := commit(db, commits[name]); err != nil {
				t.Fatal(err)
			}
			commits[name]++
		}
		if keepWAL {
			closeAsKilled(t, db, path)
		}
		db.Close()
	}
	stored := func() {
		t.Helper()
		b := start(t, dir, to, nil)
		synced(t, b)
		b.Close()
		for name, n := range commits {
			if got, _ := content(t, restored(t, to, name)); got != n {
				t.Errorf("%s: restored %d commits of %d", name, got, n)
			}
		}
	}
	change("a.db", false)
	change("sub/b.db", true)
	if err := os.WriteFile(filepath.Join(dir, "no.db"), make([]byte, 5000), 0o600); err != nil {
		t.Fatal(err)
	}
	stored()
	change("a.db", true)
	change("sub/b.db", false)
	change("new.db", true)
	stored()
	if n := count(t, to, "a.db", levelSnapshot); n != 1 {
		t.Errorf("%d snapshots of a.db: the stream was not continued", n)
	}

	old := time.Now().Add(-time.Hour)
	for name := range commits {
		for _, suffix := range []string{"", "-wal"} {
			if err := os.Chtimes(filepath.Join(dir, name+suffix), old, old); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		}
	}
	calls := 0
	to.hook = func(string) error { calls++; return nil }
	b := start(t, dir, to, nil)
	synced(t, b)
	if calls > 2 { // before and after List
		t.Errorf("%d calls of the target for databases that have not changed", calls)
	}
	if s := b.Stats(); s.Databases != 0 {
		t.Errorf("%d databases have a state in memory", s.Databases)
	}
}

// TestHotJournalIsNotStored starts a Backup beside a database that a transaction was writing when its process ended. Its
// file is not a state of the database.
func TestHotJournalIsNotStored(t *testing.T) {
	dir, to := t.TempDir(), newMemory()
	path := filepath.Join(dir, "a.db")
	db := open(t, path, modes[5])
	db.Close()
	if err := os.WriteFile(path+"-journal", []byte(journalMagic+"rest"), 0o600); err != nil {
		t.Fatal(err)
	}
	synced(t, start(t, dir, to, nil))
	if len(to.all) > 0 {
		t.Errorf("it was stored: %d objects", len(to.all))
	}
}

// TestMissing: files that begin as a database and are not among those of the target, but none of this package's own.
func TestMissing(t *testing.T) {
	dir := t.TempDir()
	head := make([]byte, 100)
	copy(head, "SQLite format 3\x00\x10")
	for name, text := range map[string]string{
		"kept.db": string(head), "tenants/new.db": string(head), "hot.db": string(head), "hot.db-journal": journalMagic,
		scratchPrefix + "1": string(head), "cut.db.restore-1.tmp": string(head), "user.tmp": string(head), "text": "SQLite", "empty": "",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	names, err := Missing(dir, []Report{{Name: "kept.db"}})
	if want := []string{"hot.db", "tenants/new.db", "user.tmp"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("Missing: %q, %v, want %q", names, err, want)
	}
}

// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
	"github.com/ringside-io/ringside/sqlitevfs/internal/grouplog"
)

const commitOnce = "PRAGMA journal_mode=wal; PRAGMA synchronous=full; CREATE TABLE IF NOT EXISTS t(a); INSERT INTO t VALUES(1); INSERT INTO t VALUES(2)"

// TestOneDirectoryHangs opens, uses and lists databases while the replay of another directory's log waits for a process
// that does not go on.
// Promise: sqlitevfs/one-directory-hangs
func TestOneDirectoryHangs(t *testing.T) {
	needLog(t)
	stuck, fine := t.TempDir(), t.TempDir()
	open := func(dir, vfs string) error {
		c, err := sqlite3.Open(uri(filepath.Join(dir, "test.db"), vfs))
		if err != nil {
			return err
		}
		defer c.Close()
		return c.Exec(commitOnce)
	}
	if err := open(stuck, NameLog); err != nil {
		t.Fatal(err)
	}
	f, err := disk.OS.Open(grouplog.Path(stuck, grouplog.Options{}), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := f.TryLock(1, 1); !ok {
		t.Fatal(err) // the byte of a replay
	}
	waits := make(chan error, 1)
	go func() { waits <- open(stuck, Name) }()
	for begun := false; !begun; runtime.Gosched() {
		logs.mu.Lock()
		for _, d := range logs.dirs {
			begun = begun || d.users > 0
		}
		logs.mu.Unlock()
	}
	for _, vfs := range []string{Name, NameLog, NamePlain} {
		if err := open(fine, vfs); err != nil {
			t.Error(err)
		}
		Databases()
		Total()
	}
	select {
	case err := <-waits:
		t.Error("the other directory did not wait: ", err)
	default:
	}
	f.Close()
	if err := <-waits; err != nil {
		t.Error(err)
	}
}

// TestWaitersShareAResult has attempts that wait for one directory at the same time.
func TestWaitersShareAResult(t *testing.T) {
	d := &logDir{}
	before := time.Now().Add(-time.Second)
	d.noteBusy(fmt.Errorf("replay: %w", grouplog.ErrBusy))
	if d.waited(before) == nil {
		t.Error("an attempt that began before waits again")
	}
	if err := d.waited(time.Now().Add(time.Second)); err != nil {
		t.Errorf("a later attempt does not try: %v", err)
	}
	other := &logDir{}
	other.noteBusy(fmt.Errorf("%w: one database: %w", grouplog.ErrPending, grouplog.ErrBusy))
	if err := other.waited(before); err != nil {
		t.Errorf("one database in use refuses all: %v", err)
	}
}

// TestOneLogWhateverItsName opens databases that name the directory of their log in different ways, or are
// themselves in a directory with several names.
func TestOneLogWhateverItsName(t *testing.T) {
	needLog(t)
	dir := t.TempDir()
	t.Chdir(dir)
	for _, d := range []string{"logs", "t"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(d, d+"-link"); err != nil {
			t.Skip("needs symbolic links: ", err)
		}
	}
	openLogs := func() int {
		logs.mu.Lock()
		defer logs.mu.Unlock()
		return len(logs.dirs)
	}
	before := openLogs()
	names := []string{dir + "/logs", dir + "/logs/", "logs", "./logs", "logs-link", "t-link/../logs", "", "", ""}
	at := []string{"a", "b", "c", "d", "e", "f", dir + "/t/g", "t-link/h", "./t/../t/i"}
	for i, name := range names {
		if err := os.MkdirAll(filepath.Dir(at[i]), 0o755); err != nil {
			t.Fatal(err)
		}
		params := []string{}
		if name != "" {
			params = []string{"grouplogdir", name}
		}
		c, err := sqlite3.Open(uri(at[i]+".db", NameLog, params...))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		execSQL(t, c, commitOnce)
	}
	for _, s := range Databases() {
		if s.GroupLog != "on" {
			t.Errorf("%s: %s", s.Path, s.GroupLog)
		}
	}
	if n := openLogs() - before; n != 2 {
		t.Errorf("%d logs are open, want 2", n)
	}
}

// TestNamesOfLogs opens databases whose names, or the names of files beside them, are those of logs and pointers.
func TestNamesOfLogs(t *testing.T) {
	needLog(t)
	for _, elsewhere := range []bool{false, true} {
		for _, name := range []string{"ringside", "a", "a-wal.log"} {
			dir := t.TempDir()
			var params []string
			if elsewhere {
				params = []string{"grouplogdir", t.TempDir()}
			}
			keep := filepath.Join(dir, "a-wal.log")
			if name == "a" {
				if err := os.WriteFile(keep, []byte("a file of another program"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for range 3 {
				c, err := sqlite3.Open(uri(filepath.Join(dir, name), NameLog, params...))
				if err != nil {
					t.Fatal(name, elsewhere, err)
				}
				other := connect(t, filepath.Join(dir, "b"), NameLog) // its log is in the directory
				execSQL(t, other, commitOnce)
				execSQL(t, c, commitOnce)
				if s := statsOf(filepath.Join(dir, name)); name == "ringside" && s.GroupLog != "on" {
					t.Errorf("%s, log elsewhere %v: %s", name, elsewhere, s.GroupLog)
				}
				c.Close()
				other.Close()
			}
			if p, err := os.ReadFile(keep); name == "a" && string(p) != "a file of another program" {
				t.Errorf("the file of another program: %q, %v", p, err)
			}
			c := connect(t, filepath.Join(dir, name), "os")
			wantQuery(t, c, "SELECT count(*) FROM t", "6")
		}
	}
	for _, name := range []string{"ringside-wal.log", "ringside-wal.log.new", "ringside-wal.log.kept-1"} {
		if c, err := sqlite3.Open(uri(filepath.Join(t.TempDir(), name), Name)); err == nil {
			c.Close()
			t.Errorf("%s was opened", name)
		} else if !strings.Contains(err.Error(), "reserved") {
			t.Error(err)
		}
	}
}

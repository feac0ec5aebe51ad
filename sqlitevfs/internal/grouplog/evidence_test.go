// SPDX-License-Identifier: MIT

package grouplog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
)

// outcome is what happens to a file between a crash and the replay.
type outcome string

const (
	stays     outcome = "stays"
	copied    outcome = "copied"    // a new file with the present content
	older     outcome = "older"     // a new file with an older content
	overwrote outcome = "overwrote" // the same file with an older content, as cp writes it
	cut       outcome = "cut"       // the file without what was not synced
	gone      outcome = "gone"
)

// TestReplacedFiles replaces each of database, WAL and log by an older or another one. Five commits are in the log, and
// older files have three of them.
func TestReplacedFiles(t *testing.T) {
	for _, c := range []struct {
		db, wal, log outcome
		want         Report // the counts
		holds        int    // commits in the WAL after the replay
		refused      error
	}{
		{stays, stays, stays, Report{Present: 5}, 5, nil},
		{stays, cut, stays, Report{Present: 2, Applied: 3}, 5, nil},
		{stays, gone, stays, Report{Missing: 5}, 0, nil},
		// The database is that of the commits, so an older WAL lacks them.
		{stays, older, stays, Report{Present: 3, Applied: 2}, 5, nil},
		{stays, overwrote, stays, Report{Present: 3, Applied: 2}, 5, nil},
		// A restored copy.
		{older, older, stays, Report{Present: 3, Replaced: 2}, 3, nil},
		{older, overwrote, stays, Report{Present: 3, Replaced: 2}, 3, nil},
		{overwrote, overwrote, stays, Report{Present: 3, Replaced: 2}, 3, nil},
		{overwrote, older, stays, Report{Present: 3, Replaced: 2}, 3, nil},
		{older, gone, stays, Report{Missing: 5}, 0, nil},
		// The WAL belongs to the database that was replaced.
		{older, stays, stays, Report{}, 5, ErrMismatched},
		{older, cut, stays, Report{}, 2, ErrMismatched},
		{gone, stays, stays, Report{Missing: 5}, 5, nil},
		// The log is a copy, so all files are taken for a copy that was made at one time.
		{copied, cut, copied, Report{Present: 2, Applied: 3}, 5, nil},
		{copied, older, copied, Report{Present: 3, Applied: 2}, 5, nil},
		{stays, stays, copied, Report{Present: 5}, 5, nil},
		{stays, cut, copied, Report{Present: 2, Applied: 3}, 5, nil},
		// An older log has nothing that newer files lack.
		{stays, stays, older, Report{Present: 3}, 5, nil},
		{older, older, older, Report{Present: 3}, 3, nil},
	} {
		t.Run(fmt.Sprintf("db-%s-wal-%s-log-%s", c.db, c.wal, c.log), func(t *testing.T) {
			dir, w := replaced(t, c.db, c.wal, c.log)
			r, err := Recover(dir, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if c.refused != nil {
				if err := r.Lacks(w.path); !errors.Is(err, c.refused) || w.holds() != c.holds {
					t.Errorf("refused with %v, %d commits in the WAL; %+v", err, w.holds(), r)
				}
				return
			}
			got := Report{Present: r.Present, Applied: r.Applied, Missing: r.Missing, Replaced: r.Replaced, Foreign: r.Foreign}
			if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
			if c.wal != gone && w.holds() != c.holds {
				t.Errorf("the WAL holds %d commits, want %d", w.holds(), c.holds)
			}
			if (r.Kept != "") != (c.want.Replaced > 0) {
				t.Errorf("the log was kept as %q", r.Kept)
			}
			if r.Kept == "" {
				return
			}
			// The log that was kept is a copy: put back, it is replayed.
			if err := os.Rename(r.Kept, Path(dir, Options{})); err != nil {
				t.Fatal(err)
			}
			if r, err := Recover(dir, Options{}); err != nil || r.Applied != 2 || w.holds() != 5 {
				t.Errorf("the log was put back: %v, %+v", err, r)
			}
		})
	}
}

// replaced makes a log with five commits, crashes, and replaces files.
func replaced(t *testing.T, db, wal, log outcome) (string, *testWAL) {
	t.Helper()
	needLocks(t)
	dir := t.TempDir()
	if f, err := disk.OS.Lookup(dir); err != nil || mark(f) == 0 {
		t.Skip("needs the time of birth of files: ", err)
	}
	l, _ := mustOpen(t, dir, small())
	w := newTestWAL(t, dir, "db")
	w.attach(l)
	names := []string{filepath.Join(dir, "db"), w.path, Path(dir, Options{})}
	was := map[string][]byte{}
	for i := range 5 {
		if i == 3 {
			for _, name := range names {
				was[name] = contentOf(t, name)
			}
		}
		if err := w.commit(2); err != nil {
			t.Fatal(err)
		}
	}
	mount := l.origin.mount
	crash(l)
	if (db == overwrote || wal == overwrote) && mount == 0 {
		t.Skip("needs the number of a mount (Linux 6.8)")
	}
	for i, how := range []outcome{db, wal, log} {
		befall(t, names[i], how, was[names[i]], w)
	}
	for i, how := range []outcome{db, wal} { // time has passed since the crash
		when := time.Now().Add(time.Minute)
		if how == cut {
			when = time.Now().Add(-time.Minute)
		} else if how == stays || how == gone {
			continue
		}
		if err := os.Chtimes(names[i], when, when); err != nil {
			t.Fatal(err)
		}
	}
	return dir, w
}

func befall(t *testing.T, name string, how outcome, was []byte, w *testWAL) {
	t.Helper()
	content := was
	switch how {
	case stays:
		return
	case cut:
		w.lose(2)
		return
	case copied:
		content = contentOf(t, name)
	}
	if how != overwrote {
		if err := os.Rename(name, filepath.Join(t.TempDir(), "former")); err != nil { // its inode stays in use
			t.Fatal(err)
		}
	}
	if how == gone {
		return
	}
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func contentOf(t *testing.T, name string) []byte {
	t.Helper()
	p, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestCheckpointedBySomeoneElse replays a log whose WAL a program without this package has put into the database.
func TestCheckpointedBySomeoneElse(t *testing.T) {
	for _, whole := range []bool{true, false} {
		dir, w := oneWAL(t, 3)
		var p []byte
		frame := int(w.parsed.frame())
		for q := contentOf(t, w.path)[walHeaderSize:]; len(q) >= frame; q = q[frame:] {
			end := int(be.Uint32(q)) * w.parsed.PageSize
			p = append(p, make([]byte, max(0, end-len(p)))...)
			copy(p[end-w.parsed.PageSize:], q[frameHeaderSize:frame])
		}
		if !whole {
			p[len(p)-1]++
		}
		if err := os.WriteFile(filepath.Join(dir, "db"), p, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(w.path); err != nil {
			t.Fatal(err)
		}
		r := reopen(t, dir)
		if whole && (r.Old != 3 || len(r.Skipped) > 0) || !whole && (r.Missing != 3 || len(r.Skipped) != 1) {
			t.Errorf("the database has all pages: %v: %+v", whole, r)
		}
	}
}

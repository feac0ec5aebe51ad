// SPDX-License-Identifier: MIT

package backup

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// TestMain runs the writer of TestKill, if it is told to.
func TestMain(m *testing.M) {
	if dir := os.Getenv("BACKUP_TEST_WRITER"); dir != "" {
		writer(dir, os.Getenv("BACKUP_TEST_TARGET"), os.Getenv("BACKUP_TEST_MODE"))
	}
	for i := range repeats {
		repeats[i] = time.Millisecond
	}
	os.Exit(m.Run())
}

const writerCheck = 200 * time.Millisecond

// writer commits to a database until it is killed. It prints each acknowledged commit, and the last one before each call
// of Sync after that has returned.
func writer(dir, target, mode string) {
	t := &testing.T{}
	b, err := Start(Options{Dir: dir, Target: Dir(target), Interval: 10 * time.Millisecond, Scratch: dir, check: writerCheck})
	if err != nil {
		panic(err)
	}
	defer b.Close()
	db := open(t, filepath.Join(dir, "tenant.db"), mode)
	var n int
	if err := db.QueryRow("SELECT n FROM count").Scan(&n); err != nil {
		panic(err)
	}
	for {
		if err := commit(db, n); err != nil {
			panic(err)
		}
		n++
		fmt.Println("committed", n)
		if n%40 == 0 {
			if err := b.Sync(context.Background()); err != nil {
				panic(err)
			}
			fmt.Println("synced", n)
		}
	}
}

var long = flag.Bool("long", false, "kill later, and more often")

// TestKill kills a process that commits, at any moment, soon after its first commit and after seconds. The target then
// has a state after some commit, with all commits that Sync has waited for, and the next process continues the stream.
// Promise: sqlitevfs/backup-killed-process
func TestKill(t *testing.T) {
	for _, mode := range []string{modes[2], modes[3], modes[5]} {
		t.Run(mode, func(t *testing.T) {
			dir, to := t.TempDir(), t.TempDir()
			kills := []time.Duration{1800, 30, 104, 67, 141}[:ringtest.Rounds(5, 3)]
			if *long {
				kills = append(kills, 3100, 5200, 50, 12000, 20000)
			}
			for _, after := range kills {
				acknowledged, waited := run(t, dir, to, mode, after*time.Millisecond)
				n := 0
				if files, _ := Files(t.Context(), Dir(to), "tenant.db"); len(files) > 0 {
					if path := restored(t, Dir(to), "tenant.db"); waited > 0 || tables(t, path) {
						n, _ = content(t, path)
					}
				}
				t.Logf("%d commits acknowledged, %d synced, %d restored", acknowledged, waited, n)
				if n < waited || n > acknowledged+1 {
					t.Fatalf("restored %d commits; Sync had returned after %d, %d were acknowledged", n, waited, acknowledged)
				}
			}
			b := start(t, dir, Dir(to), nil)
			db := open(t, filepath.Join(dir, "tenant.db"), mode)
			defer db.Close()
			if err := commit(db, 0); err != nil {
				t.Fatal(err)
			}
			synced(t, b)
			var n int
			if err := db.QueryRow("SELECT n FROM count").Scan(&n); err != nil {
				t.Fatal(err)
			}
			same(t, Dir(to), "tenant.db", filepath.Join(dir, "tenant.db"), n)
			if r, err := Verify(t.Context(), Dir(to), "tenant.db"); err != nil || len(r.Problems) > 0 {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// TestScratchHasNoNames looks for files in Options.Scratch while objects are merged: they would be left by a process that
// is killed then.
// Promise: sqlitevfs/backup-killed-process
func TestScratchHasNoNames(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs a system that removes the names of open files")
	}
	l, m := stored(t)
	puts := 0
	m.hook = func(call string) error {
		if call != "Put" {
			return nil
		}
		puts++
		if left, err := os.ReadDir(l.d.b.opts.Scratch); err != nil || len(left) > 0 {
			t.Errorf("during a Put: %v, %v", left, err)
		}
		return nil
	}
	if err := errors.Join(l.compact(1), l.compact(2)); err != nil || puts == 0 {
		t.Errorf("%d objects, %v", puts, err)
	}
}

// tables reports whether the tables had been created.
func tables(t *testing.T, path string) bool {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+path+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var n int
	err = db.QueryRow("SELECT n FROM count").Scan(&n)
	return err == nil
}

// run starts the writer and kills it some time after its first commit. It returns the last acknowledged commit, and the
// last one that Sync has waited for.
func run(t *testing.T, dir, to, mode string, after time.Duration) (last, synced int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "BACKUP_TEST_WRITER="+dir, "BACKUP_TEST_TARGET="+to, "BACKUP_TEST_MODE="+mode)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var what string
		var n int
		fmt.Sscan(lines.Text(), &what, &n)
		if what == "synced" {
			synced = n
			continue
		}
		if last == 0 {
			time.AfterFunc(after, func() { cmd.Process.Kill() })
		}
		last = n
	}
	cmd.Wait()
	return last, synced
}

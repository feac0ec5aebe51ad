// SPDX-License-Identifier: MIT

package backup

import (
	"bufio"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestMain runs the writer of TestKill, if it is told to.
func TestMain(m *testing.M) {
	if dir := os.Getenv("BACKUP_TEST_WRITER"); dir != "" {
		writer(dir, os.Getenv("BACKUP_TEST_TARGET"), os.Getenv("BACKUP_TEST_MODE"))
	}
	os.Exit(m.Run())
}

// writer commits to a database until it is killed. It prints each acknowledged commit.
func writer(dir, target, mode string) {
	t := &testing.T{}
	b, err := Start(Options{Dir: dir, Target: Dir(target), Interval: 10 * time.Millisecond, Scratch: dir})
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
		fmt.Println(n)
	}
}

// TestKill kills a process that commits, at any moment. The target then has a state after some commit, at most a second
// older than the last acknowledged one, and the next process continues the stream.
// Promise: sqlitevfs/backup-killed-process
func TestKill(t *testing.T) {
	for _, mode := range []string{modes[2], modes[3], modes[5]} {
		t.Run(mode, func(t *testing.T) {
			dir, to := t.TempDir(), t.TempDir()
			for i := range 4 {
				acknowledged, waited := run(t, dir, to, mode, time.Duration(30+i*37)*time.Millisecond)
				n := 0
				if files, _ := Files(t.Context(), Dir(to), "tenant.db"); len(files) > 0 {
					if path := restored(t, Dir(to), "tenant.db"); waited > 0 || tables(t, path) {
						n, _ = content(t, path)
					}
				}
				t.Logf("%d commits acknowledged, %d restored", acknowledged, n)
				if n < waited || n > acknowledged+1 {
					t.Fatalf("restored %d commits; %d were acknowledged a second before the kill, %d at the kill", n, waited, acknowledged)
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
// last one that was acknowledged a second before the kill.
func run(t *testing.T, dir, to, mode string, after time.Duration) (last, waited int) {
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
	type ack struct {
		n  int
		at time.Time
	}
	var acks []ack
	lines := bufio.NewScanner(out)
	var killed time.Time
	for lines.Scan() {
		var n int
		fmt.Sscan(lines.Text(), &n)
		if acks = append(acks, ack{n, time.Now()}); len(acks) == 1 {
			time.AfterFunc(after, func() { cmd.Process.Kill() })
		}
	}
	killed = time.Now()
	cmd.Wait()
	for _, a := range acks {
		if last = a.n; killed.Sub(a.at) > time.Second {
			waited = a.n
		}
	}
	return last, waited
}

// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/ringside-io/ringside/sqlitevfs"
	"github.com/ringside-io/ringside/sqlitevfs/backup"
)

// backedUp makes two databases with three rows each, and a backup of them.
func backedUp(t *testing.T) (dir, target string) {
	t.Helper()
	dir, target = t.TempDir(), t.TempDir()
	b, err := backup.Start(backup.Options{Dir: dir, Target: backup.Dir(target), Interval: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, name := range []string{"a.db", "sub/b.db"} {
		insert(t, dir, name, 3)
	}
	if err := b.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	return dir, target
}

// insert adds rows to a database, each in a commit of its own.
func insert(t *testing.T, dir, name string, rows int) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err != nil {
		t.Fatal(err)
	}
	c, err := sqlite3.Open("file:" + path + "?vfs=" + sqlitevfs.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = c.Exec("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE IF NOT EXISTS t(v)")
	for range rows {
		if err == nil {
			err = c.Exec("INSERT INTO t VALUES('row')")
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

func backupCommand(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), append([]string{"backup"}, args...), &o, &e)
	return code, o.String(), e.String()
}

// TestBackupCommands lists, compares, verifies and restores.
// Promise: cli/backup-restores
func TestBackupCommands(t *testing.T) {
	dir, target := backedUp(t)
	to := filepath.Join(t.TempDir(), "new", "dir")
	for _, step := range []struct {
		args string
		code int
		want string
	}{
		{"ls " + target, exitOK, "sub/b.db"},
		{"ls " + target + " a.db", exitOK, "a.db/ltx/9/"},
		{"ls --json " + target + " a.db", exitOK, `"Level": 9`},
		{"status " + target, exitOK, "a.db"},
		{"status --dir " + dir + " " + target, exitOK, "has all commits"},
		{"verify " + target, exitOK, "2 databases, "},
		{"verify " + target + " a.db", exitOK, "1 databases, "},
		{"restore " + target + " " + to + " a.db", exitOK, "a.db: transaction "},
		{"restore " + target + " " + to, exitFailure, "a.db: file already exists: name an empty directory"},
		{"restore " + target + " " + to + " sub/b.db", exitOK, "1 of 1 databases are restored"},
		{"restore --before 1h " + target + " " + to + "2", exitFailure, "a.db: not restored: backup: the target has no such state"},
	} {
		code, out, errs := backupCommand(t, strings.Fields(step.args)...)
		if code != step.code || !strings.Contains(out+errs, step.want) {
			t.Errorf("%s: exit %d, %s%s", step.args, code, out, errs)
		}
	}
	for _, name := range []string{"a.db", "sub/b.db"} {
		if n := logRows(t, to, name); n != 3 {
			t.Errorf("%s: restored %d rows", name, n)
		}
	}
	words, directive := completions(t, "backup", "restore", target, "x", "a.db", "")
	if strings.Join(words, " ") != "sub/b.db" || directive != ":4" {
		t.Errorf("completion: %q %s", words, directive)
	}
}

// TestBackupProblems has a backup that lacks a commit, a database and an object.
// Promise: cli/backup-restores
func TestBackupProblems(t *testing.T) {
	dir, target := backedUp(t)
	insert(t, dir, "a.db", 1)
	insert(t, dir, "new.tmp", 1)
	code, out, errs := backupCommand(t, "status", "--json", "--dir", dir, target)
	var all []backupStatus
	if err := json.Unmarshal([]byte(out), &all); err != nil || code != exitFailure || len(all) != 3 {
		t.Fatalf("exit %d, %v, %s%s", code, err, out, errs)
	}
	for i, want := range []string{stateBehind, stateMissing, stateCurrent} {
		if all[i].State != want {
			t.Errorf("%s: %q, want %q", all[i].Name, all[i].State, want)
		}
	}
	objects, err := filepath.Glob(filepath.Join(target, "a.db/ltx/9/*"))
	if err != nil || len(objects) == 0 {
		t.Fatal(objects, err)
	}
	flip(t, objects[0], []byte("LTX1"), 200)
	for _, step := range []struct{ args, want string }{
		{"verify " + target, "a.db: a.db/ltx/9/"},
		{"restore " + target + " " + t.TempDir(), "1 of 2 databases are restored"},
	} {
		code, out, errs := backupCommand(t, strings.Fields(step.args)...)
		if code != exitFailure || !strings.Contains(out, step.want) || errs != "" {
			t.Errorf("%s: exit %d, %s%s", step.args, code, out, errs)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "sub")); err != nil {
		t.Fatal(err)
	}
	if _, out, _ := backupCommand(t, "status", "--dir", dir, target); !strings.Contains(out, stateGone) {
		t.Errorf("status without a database: %s", out)
	}
}

// TestBackupRestoreKilled kills a restore that has begun to write. The next one removes what it left.
// Promise: cli/next-run-removes
func TestBackupRestoreKilled(t *testing.T) {
	_, target := backedUp(t)
	objects, err := filepath.Glob(filepath.Join(target, "a.db/ltx/*/*"))
	if err != nil || len(objects) == 0 {
		t.Fatal(objects, err)
	}
	saved, to := t.TempDir(), t.TempDir()
	for i, path := range objects { // a pipe without a writer, which is read for ever
		if err := errors.Join(os.Rename(path, filepath.Join(saved, fmt.Sprint(i))), syscall.Mkfifo(path, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	r := startCommand(t, t.TempDir(), []string{"backup", "restore", target, to, "a.db"})
	eventually(t, "a file that is not complete", func() bool {
		left, _ := os.ReadDir(to)
		return len(left) > 0
	})
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait() // it was killed
	for i, path := range objects {
		if err := errors.Join(os.Remove(path), os.Rename(filepath.Join(saved, fmt.Sprint(i)), path)); err != nil {
			t.Fatal(err)
		}
	}
	if code, out, errs := backupCommand(t, "restore", target, to); code != exitOK {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	if left, _ := filepath.Glob(filepath.Join(to, "*")); len(left) != 2 {
		t.Errorf("the restore left %q, want a.db and sub", left)
	}
}

// TestBackupRefuses gives targets and names that cannot be used.
// Promise: cli/backup-restores
func TestBackupRefuses(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, "<Error><Code>NoSuchBucket</Code><Message>no</Message></Error>")
	}))
	defer server.Close()
	_, target := backedUp(t)
	for _, step := range []struct {
		args string
		code int
		want string
	}{
		{"ls", exitUsage, "backup ls takes TARGET [DATABASE], got 0 arguments"},
		{"ls " + target + " a.db b.db", exitUsage, "got 3 arguments"},
		{"restore " + target, exitUsage, "backup restore takes TARGET DIR [DATABASE]..., got 1"},
		{"ls /does/not/exist", exitFailure, "no such directory: name one that exists"},
		{"ls ftp://x", exitUsage, `backup ls: "ftp://x" is neither a directory nor s3://BUCKET/PREFIX`},
		{"ls s3://", exitUsage, "is not s3://BUCKET/PREFIX"},
		{"ls s3://xxx?endpoint=nowhere", exitUsage, "is not a URL"},
		{"ls s3://bucket?region=us-east-1&endpoint=" + server.URL, exitFailure, "create the bucket, or name another"},
		{"ls " + t.TempDir(), exitFailure, "has no backup of a database"},
		{"ls " + target + " c.db", exitFailure, `has no database "c.db": 'ringside backup ls' lists them`},
		{"verify --parallel 0 " + target, exitUsage, "--parallel 0: must be at least 1"},
		{"restore --before yesterday " + target + " x", exitUsage, `--before "yesterday": must be a time such as`},
		{"restore --before -5m " + target + " x", exitUsage, "--before"},
		{"status --dir /does/not/exist " + target, exitFailure, "--dir /does/not/exist: no such directory"},
		{"restore " + target + " /dev/null/x", exitFailure, "/dev/null"},
	} {
		code, out, errs := backupCommand(t, strings.Fields(step.args)...)
		if code != step.code || !strings.Contains(out+errs, step.want) {
			t.Errorf("%s: exit %d, %s%s", step.args, code, out, errs)
		}
	}
	t.Chdir(t.TempDir())
	// Empty are variables of a script that are not set: they must not mean the newest state, or no comparison.
	for _, args := range [][]string{
		{"restore", target, ""}, {"restore", "", "x"}, {"restore", "--before", "", target, "x"}, {"status", "--dir", "", target},
	} {
		if code, out, errs := backupCommand(t, args...); code != exitUsage {
			t.Errorf("%q: exit %d, %s%s", args, code, out, errs)
		}
	}
}

// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/ringside-io/ringside/sqlitevfs"
)

// crashedLog makes a directory as a power cut leaves it: two databases that lack three
// commits each, which their log has.
func crashedLog(t *testing.T) string {
	t.Helper()
	dir, copied := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	for _, name := range []string{"a.db", "b.db"} {
		c, err := sqlite3.Open("file:" + filepath.Join(dir, name) + "?vfs=" + sqlitevfs.NameLog)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.Exec("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t(v)"); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := c.Exec("INSERT INTO t VALUES('row')"); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, s := range sqlitevfs.Databases() {
		if strings.HasPrefix(s.Path, dir) && s.GroupLog != "on" {
			t.Skip("no log of commits: ", s.GroupLog)
		}
	}
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.db", "b.db"} {
		if err := os.Truncate(filepath.Join(copied, name+"-wal"), 32+2*(24+4096)); err != nil {
			t.Fatal(err)
		}
		os.Remove(filepath.Join(copied, name+"-shm"))
	}
	return copied
}

// logCommand runs "ringside log".
func logCommand(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), append([]string{"log"}, args...), &o, &e)
	return code, o.String(), e.String()
}

func logRows(t *testing.T, dir, name string) int {
	t.Helper()
	c, err := sqlite3.Open("file:" + filepath.Join(dir, name) + "?vfs=" + sqlitevfs.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, _, err := c.Prepare("SELECT count(*) FROM t")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Step()
	return s.ColumnInt(0)
}

// flip damages a byte of a file.
func flip(t *testing.T, path string, find []byte, behind int) {
	t.Helper()
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p[bytes.Index(p, find)+behind] ^= 1
	if err := os.WriteFile(path, p, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Promise: cli/log-inspects-replays
func TestLogInspectAndReplay(t *testing.T) {
	dir := crashedLog(t)
	code, out, errs := logCommand(t, "inspect", dir, "--json")
	var r sqlitevfs.LogReport
	if err := json.Unmarshal([]byte(out), &r); code != exitOK || err != nil {
		t.Fatal(code, errs, err)
	}
	if r.Commits != 6 || r.Missing != 6 || len(r.WALs) != 2 || r.WALs[0].Missing != 3 || !r.Sound() || r.InUse || r.Closed {
		t.Errorf("%+v", r)
	}
	for _, step := range []struct {
		name string
		code int
		want string
	}{
		{"inspect", exitOK, "6 commits, 6 to replay"},
		{"verify", exitOK, "6 commits, 6 to replay"},
		{"replay", exitOK, "6 commits, 6 replayed"},
		{"verify", exitOK, "closed, 0 commits"},
		{"replay", exitOK, "0 commits"},
	} {
		if code, out, errs := logCommand(t, step.name, dir); code != step.code || !strings.Contains(out, step.want) {
			t.Errorf("%s: exit %d, %s%s", step.name, code, out, errs)
		}
	}
	if a, b := logRows(t, dir, "a.db"), logRows(t, dir, "b.db"); a != 3 || b != 3 {
		t.Errorf("%d and %d rows", a, b)
	}
}

// TestLogReplayOfDeletedDatabase replays a log of which one database was deleted: its commits cannot
// be replayed, as verify has said.
func TestLogReplayOfDeletedDatabase(t *testing.T) {
	dir := crashedLog(t)
	for _, name := range []string{"a.db", "a.db-wal"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"verify", "replay"} {
		if code, out, errs := logCommand(t, name, dir); code != exitFailure || !strings.Contains(out, "a.db-wal, 3 commits: ") {
			t.Errorf("%s: exit %d, %s%s", name, code, out, errs)
		}
	}
	if n := logRows(t, dir, "b.db"); n != 3 {
		t.Errorf("%d rows in the other database", n)
	}
}

// Promise: cli/log-inspects-replays
func TestLogSalvage(t *testing.T) {
	dir := crashedLog(t)
	log := filepath.Join(dir, "ringside-wal.log")
	flip(t, log, []byte("a.db-wal"), 1000)
	for _, name := range []string{"inspect", "verify", "replay"} {
		want := map[string]int{"inspect": exitOK, "verify": exitFailure, "replay": exitFailure}[name]
		code, out, errs := logCommand(t, name, dir)
		if code != want || !strings.Contains(out, "damaged at") || !strings.Contains(out, "refused: "+filepath.Join(dir, "a.db-wal")) || strings.Contains(out, "refused: "+filepath.Join(dir, "b.db-wal")) {
			t.Errorf("%s: exit %d, %s%s", name, code, out, errs)
		}
	}
	if n := logRows(t, dir, "b.db"); n != 3 {
		t.Errorf("%d rows in the other database", n)
	}
	code, out, errs := logCommand(t, "salvage", dir)
	if code != exitOK || !strings.Contains(out, "the log was renamed to "+log+".salvaged-1") || !strings.Contains(out, "not replayed: "+filepath.Join(dir, "a.db-wal")) {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	if n := logRows(t, dir, "a.db"); n != 0 {
		t.Errorf("the salvaged database has %d rows; its first commit was damaged", n)
	}
	if code, _, errs := logCommand(t, "inspect", dir); code != exitFailure || !strings.Contains(errs, "has no log") {
		t.Errorf("afterwards: exit %d, %s", code, errs)
	}
}

// TestLogSalvageWithoutHeader finds the commits of a log that has lost both copies of its
// header.
// Promise: cli/log-inspects-replays
func TestLogSalvageWithoutHeader(t *testing.T) {
	dir := crashedLog(t)
	log := filepath.Join(dir, "ringside-wal.log")
	flip(t, log, []byte("RSGRPLOG"), 3)
	flip(t, log, []byte("RSGRPLOG"), 3)
	if code, _, errs := logCommand(t, "inspect", dir); code != exitFailure || !strings.Contains(errs, "no valid header") {
		t.Errorf("exit %d, %s", code, errs)
	}
	if code, out, errs := logCommand(t, "salvage", dir); code != exitOK || !strings.Contains(out, "6 replayed") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	if a, b := logRows(t, dir, "a.db"), logRows(t, dir, "b.db"); a != 3 || b != 3 {
		t.Errorf("%d and %d rows", a, b)
	}
}

// Promise: cli/log-inspects-replays
func TestLogInUse(t *testing.T) {
	dir := t.TempDir()
	c, err := sqlite3.Open("file:" + filepath.Join(dir, "a.db") + "?vfs=" + sqlitevfs.NameLog)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Exec("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t(v); INSERT INTO t VALUES(1)"); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := logCommand(t, "inspect", dir); code != exitOK || !strings.Contains(out, "in use, 1 commits, 0 to replay") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	for _, name := range []string{"replay", "salvage"} {
		if code, _, errs := logCommand(t, name, dir); code != exitFailure || !strings.Contains(errs, "in use") {
			t.Errorf("%s: exit %d, %s", name, code, errs)
		}
	}
}

func TestLogArguments(t *testing.T) {
	for _, args := range []string{"inspect", "inspect a b", "verify --nothing x", "salvage"} {
		if code, _, _ := logCommand(t, strings.Fields(args)...); code != exitUsage {
			t.Errorf("%s: exit %d", args, code)
		}
	}
	for _, name := range []string{"inspect", "verify", "replay", "salvage"} {
		for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), "missing")} {
			if code, _, errs := logCommand(t, name, dir); code != exitFailure || errs == "" {
				t.Errorf("%s: exit %d, %s", name, code, errs)
			}
		}
	}
	if code, out, _ := logCommand(t); code != exitOK || !strings.Contains(fmt.Sprint(out), "salvage") {
		t.Error("no help")
	}
}

// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
)

const cutArg = "sqlitevfs-cut"

// cutProcess is the main function of a process that commits with synchronous=FULL, copies
// the durable part of the WAL, and lets another connection commit. Then it commits again,
// and exits without closing anything.
func cutProcess(args []string) int {
	path, params, other := args[0], args[1], args[2]
	run := func(uri string, sql ...string) {
		c, err := sqlite3.Open(uri)
		for _, q := range append([]string{"PRAGMA busy_timeout=60000; PRAGMA journal_mode=WAL"}, sql...) {
			if err == nil {
				err = c.Exec(q)
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if other == "only" {
		run("file:"+path+"?vfs=os", "PRAGMA synchronous=NORMAL; INSERT INTO t VALUES('unimportant')")
		return 0
	}
	// Its log takes commits that are alone too.
	vfs.Register("base", &logBase{vfs.Find("os"), &failFS{FS: disk.OS}})
	if err := Register("cut", Options{Base: "base", GroupLog: On}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ours := "file:" + path + "?vfs=cut" + params
	run(ours, "PRAGMA synchronous=FULL; CREATE TABLE t(x)", "INSERT INTO t VALUES('filler')", "INSERT INTO t VALUES('filler')",
		"PRAGMA wal_checkpoint(RESTART)", "INSERT INTO t VALUES('first')", "INSERT INTO t VALUES('first')")
	p, err := os.ReadFile(path + "-wal")
	if err == nil {
		err = os.WriteFile(path+"-durable", p, 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	switch other {
	case "connection":
		run("file:"+path+"?vfs=cut", "PRAGMA synchronous=NORMAL; INSERT INTO t VALUES('unimportant')")
	case "process":
		child := exec.Command(os.Args[0], cutArg, path, "", "only")
		child.Stderr = os.Stderr
		if err := child.Run(); err != nil {
			return 1
		}
	}
	before := statsOf(path).Logged
	run(ours, "PRAGMA synchronous=FULL", "INSERT INTO t VALUES('acknowledged')")
	if statsOf(path).Logged == before {
		fmt.Fprintln(os.Stderr, "the commit was not logged, so the copied WAL lacks durable commits")
		return 1
	}
	return 0
}

// TestCommitBehindOthers cuts the power after a commit that is in the log. The disk has the
// WAL as of its last sync. Before the commit, another connection or process has committed
// with synchronous=NORMAL, or SQLite has synced its WAL in the middle of a frame.
// Promise: sqlitevfs/log-commits-connection
func TestCommitBehindOthers(t *testing.T) {
	needLog(t)
	for _, k := range []struct{ name, params, other string }{
		{"alone", "", ""},
		{"another connection", "", "connection"},
		{"another process with the default VFS", "", "process"},
		{"without powersafe overwrite", "&psow=0", ""},
		{"without powersafe overwrite, another connection", "&psow=0", "connection"},
	} {
		t.Run(k.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "test.db")
			child := exec.Command(os.Args[0], cutArg, path, k.params, k.other)
			child.Stderr = os.Stderr
			if err := child.Run(); err != nil {
				t.Fatal(err)
			}
			p, err := os.ReadFile(path + "-durable")
			if err == nil {
				err = os.WriteFile(path+"-wal", p, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			os.Remove(path + "-shm")
			c := connect(t, path, Name)
			wantQuery(t, c, "SELECT count(*) FROM t WHERE x='acknowledged'", "1")
			wantQuery(t, c, "PRAGMA integrity_check", "ok")
		})
	}
}

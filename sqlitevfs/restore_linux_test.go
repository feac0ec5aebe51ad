// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
	"github.com/ringside-io/ringside/sqlitevfs/internal/grouplog"
)

// restoreEnv is set in the process that TestRestore kills: the directory.
const restoreEnv = "RINGSIDE_TEST_RESTORE"

// TestRestore restores a database with the commands of docs/guide-sqlite.md, and by other means. The commits that
// the backup lacks are in the log, and must not come back.
// Promise: sqlitevfs/restored-database-stays
func TestRestore(t *testing.T) {
	if dir := os.Getenv(restoreEnv); dir != "" {
		serveUntilKilled(dir)
		return
	}
	needLog(t)
	guide := guideCommands(t)
	for _, c := range []struct{ name, commands string }{
		{"guide", guide},
		{"removed", `rm -f tenant.db tenant.db-wal tenant.db-shm; cp backup/tenant.db backup/tenant.db-wal .`},
		{"overwritten", `rm -f tenant.db-shm; cp backup/tenant.db backup/tenant.db-wal .`},
		{"renamed", `rm -f tenant.db-shm; mv tenant.db bad.db; mv tenant.db-wal bad.db-wal; cp backup/tenant.db backup/tenant.db-wal .`},
		{"moved", `rm -f tenant.db-shm; mv backup/tenant.db backup/tenant.db-wal .`},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			cmd := exec.Command(os.Args[0], "-test.run=^TestRestore$")
			cmd.Env = append(os.Environ(), restoreEnv+"="+dir)
			cmd.Stderr = os.Stderr
			ringtest.KillAfter(t, cmd, 1, func(line string) bool { return line == "ready" })
			sh := exec.Command("sh", "-eu", "-c", c.commands)
			sh.Dir = dir
			if out, err := sh.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for _, by := range []string{NameLog, Name, "os"} {
				wantQuery(t, connect(t, filepath.Join(dir, "tenant.db"), by), "SELECT count(*) FROM t", "40")
			}
			wantQuery(t, connect(t, filepath.Join(dir, "other.db"), NameLog), "SELECT count(*) FROM t", "80")
			if c.name == "renamed" {
				wantQuery(t, connect(t, filepath.Join(dir, "bad.db"), NameLog), "SELECT count(*) FROM t", "80")
			}
		})
	}
}

// guideCommands returns the commands of the guide.
func guideCommands(t *testing.T) string {
	t.Helper()
	p, err := os.ReadFile("../docs/guide-sqlite.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(p), "\n## Restore a database\n")
	_, block, _ := strings.Cut(section, "```sh\n")
	commands, _, ok := strings.Cut(block, "```\n")
	if !ok {
		t.Fatal("the guide has no such commands")
	}
	return commands
}

// everyCommit makes the log take and keep each commit, so that it has all that the copy lacks.
type everyCommit struct{ vfs.VFS }

func (b everyCommit) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	return vfsutil.WrapOpenFilename(b.VFS, name, flags)
}

func (everyCommit) GroupLog() grouplog.Options {
	return grouplog.Options{FS: disk.OS, FirstSegments: 4 << 20, Always: true, Local: true}
}

// serveUntilKilled commits to two databases by a log, and copies one after 40 of 80 commits.
func serveUntilKilled(dir string) {
	vfs.Register("restore-base", everyCommit{vfs.Find("os")})
	if err := Register("restore", Options{Base: "restore-base", GroupLog: On}); err != nil {
		panic(err)
	}
	tenant, other := serve(dir, "tenant.db"), serve(dir, "other.db")
	both := func() {
		var wg sync.WaitGroup
		for _, c := range []*sqlite3.Conn{tenant, other} {
			wg.Go(func() {
				for range 40 {
					if err := c.Exec("INSERT INTO t VALUES(1)"); err != nil {
						panic(err)
					}
				}
			})
		}
		wg.Wait()
	}
	both()
	copyTo := func(name string) {
		p, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "backup", name), p, 0o600)
		}
		if err != nil {
			panic(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "backup"), 0o755); err != nil {
		panic(err)
	}
	copyTo("tenant.db")
	copyTo("tenant.db-wal")
	both()
	fmt.Println("ready")
	select {}
}

func serve(dir, name string) *sqlite3.Conn {
	c, err := sqlite3.Open(uri(filepath.Join(dir, name), "restore"))
	if err == nil {
		err = c.Exec("PRAGMA journal_mode=wal; PRAGMA synchronous=full; CREATE TABLE t(x)")
	}
	if err != nil {
		panic(err)
	}
	return c
}

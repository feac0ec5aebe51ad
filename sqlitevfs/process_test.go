// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/ncruces/go-sqlite3"
)

const writerArg = "sqlitevfs-writer"

// writer is the main function of a child process: it commits rows through a VFS.
func writer(args []string) int {
	path, vfsName, mode := args[0], args[1], args[2]
	id, _ := strconv.Atoi(args[3])
	count, _ := strconv.Atoi(args[4])
	c, err := sqlite3.Open(uri(path, vfsName))
	if err == nil {
		defer c.Close()
		err = c.Exec("PRAGMA busy_timeout=60000; PRAGMA journal_mode=" + mode + "; PRAGMA synchronous=FULL")
	}
	for i := 0; i < count && err == nil; i++ {
		err = c.Exec(fmt.Sprintf("BEGIN IMMEDIATE; INSERT INTO t(who, n, x) VALUES(%d, %d, randomblob(300)); UPDATE s SET n=n+1; COMMIT", id, i))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, vfsName, err)
		return 1
	}
	return 0
}

// Processes with this VFS and processes with the default VFS use one database.
// Promise: sqlitevfs/programs-default-vfs
func TestProcessesWithTheDefaultVFS(t *testing.T) {
	count := 40
	if testing.Short() {
		count = 5
	}
	for _, mode := range []string{"delete", "truncate", "wal"} {
		t.Run(mode, func(t *testing.T) {
			path := dbFile(t)
			c := connect(t, path, Name)
			execSQL(t, c, "PRAGMA journal_mode="+mode+"; CREATE TABLE t(id INTEGER PRIMARY KEY, who, n, x); CREATE INDEX i ON t(who, n); CREATE TABLE s(n); INSERT INTO s VALUES(0)")
			var children []*exec.Cmd
			for i, name := range []string{Name, "os", NameGroup} {
				child := exec.Command(os.Args[0], writerArg, path, name, mode, strconv.Itoa(i), strconv.Itoa(count))
				child.Stderr = os.Stderr
				if err := child.Start(); err != nil {
					t.Fatal(err)
				}
				children = append(children, child)
			}
			for _, child := range children {
				if err := child.Wait(); err != nil {
					t.Error(err)
				}
			}
			wantQuery(t, c, "SELECT count(*) FROM t", strconv.Itoa(3*count))
			wantQuery(t, c, "SELECT n FROM s", strconv.Itoa(3*count))
			wantQuery(t, c, "PRAGMA integrity_check", "ok")
		})
	}
}

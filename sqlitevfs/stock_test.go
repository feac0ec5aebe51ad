// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestStockProcess runs a process of stock SQLite at the same time as this VFS, both
// reading and writing one database.
func TestStockProcess(t *testing.T) {
	stock, err := exec.LookPath("sqlite3")
	if err != nil {
		t.Skip("needs the program sqlite3")
	}
	span := 2 * time.Second
	if testing.Short() {
		span = 200 * time.Millisecond
	}
	if *long {
		span = time.Minute
	}
	for _, mode := range []string{"delete", "wal"} {
		t.Run(mode, func(t *testing.T) {
			path := dbFile(t)
			c := connect(t, path, Name)
			execSQL(t, c, "PRAGMA busy_timeout=60000; PRAGMA journal_mode="+mode+"; PRAGMA synchronous=FULL; CREATE TABLE t(id INTEGER PRIMARY KEY, who, x); CREATE INDEX i ON t(who); CREATE TABLE s(n); INSERT INTO s VALUES(0)")
			cli := exec.Command(stock, "-batch", path)
			in, err := cli.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			cli.Stdout, cli.Stderr = &out, &out
			if err := cli.Start(); err != nil {
				t.Fatal(err)
			}
			step := "BEGIN IMMEDIATE; INSERT INTO t(who,x) VALUES('%s',randomblob(500)); UPDATE s SET n=n+1; COMMIT;\n"
			fmt.Fprintln(in, ".timeout 60000")
			n := 0
			for start := time.Now(); time.Since(start) < span; n++ {
				fmt.Fprintf(in, step, "stock")
				execSQL(t, c, fmt.Sprintf(step, "ours"))
			}
			fmt.Fprintln(in, "PRAGMA integrity_check; SELECT count(*) FROM t WHERE who='stock';")
			in.Close()
			if err := cli.Wait(); err != nil {
				t.Error(err)
			}
			if want := fmt.Sprintf("ok\n%d\n", n); out.String() != want {
				t.Errorf("stock SQLite printed %q, want %q", out.String(), want)
			}
			wantQuery(t, c, "SELECT n FROM s", fmt.Sprint(2*n))
			wantQuery(t, c, "PRAGMA integrity_check", "ok")
		})
	}
}

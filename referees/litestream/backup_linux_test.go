// SPDX-License-Identifier: MIT

package litestream

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/ringside-io/ringside/sqlitevfs/backup"
)

// TestRestoresBackup restores by Litestream what package backup has written: the stream as it was written, and after
// compaction. Litestream compares the checksum of the database with the one in the last file.
// Promise: sqlitevfs/backup-litestream-restores
func TestRestoresBackup(t *testing.T) {
	if os.Getenv("RINGSIDE_REFEREES") != "all" {
		t.Skip("needs RINGSIDE_REFEREES=all, and the module proxy: make referees sets it")
	}
	exe, err := program()
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{
		pragmas + "&vfs=ringside", pragmas + "&vfs=ringside-log&_pragma=wal_autocheckpoint(50)",
		"_txlock=immediate&vfs=ringside&_pragma=busy_timeout(30000)&_pragma=journal_mode(persist)",
	} {
		t.Run(mode, func(t *testing.T) {
			dir, target := t.TempDir(), t.TempDir()
			b, err := backup.Start(backup.Options{Dir: dir, Target: backup.Dir(target), Interval: 10 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			db := open(t, filepath.Join(dir, "a.db"), mode)
			create(t, db)
			for range 3 {
				if err := commit(db, 40); err != nil {
					t.Fatal(err)
				}
				if err := b.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				to := filepath.Join(t.TempDir(), "restored.db")
				cmd := exec.Command(exe, "restore", "-o", to, "file://"+filepath.Join(target, "a.db"))
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("litestream restore: %v\n%s", err, out)
				}
				want, all := content(t, db)
				if got, same := content(t, open(t, to, "mode=ro")); got != want || same != all {
					t.Fatalf("litestream restored %d commits of %d, or another content", got, want)
				}
			}
		})
	}
}

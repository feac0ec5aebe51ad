// SPDX-License-Identifier: MIT

package grouplog

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// killDirEnv makes the test binary the process that is killed.
const killDirEnv = "RINGSIDE_TEST_GROUPLOG_DIR"

// Each commit may be alone in its batch, which takes a block. So all fit into one segment, and no WAL is synced.
const (
	killWALs    = 4
	killSegment = 4 << 20
	killCommits = killSegment / block / 2
)

// TestKilled kills processes that commit, discards the unsynced parts of their WALs, and
// finds every commit that they reported as durable.
// Promise: sqlitevfs/committed-transaction-found-whole
func TestKilled(t *testing.T) {
	if dir := os.Getenv(killDirEnv); dir != "" {
		commitUntilKilled(t, dir)
		return
	}
	needLocks(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	lives := ringtest.Rounds(12, 4)
	if testing.Short() {
		lives = 2
	}
	for range lives {
		dir := t.TempDir()
		cmd := exec.Command(exe, "-test.run=^TestKilled$")
		cmd.Env = append(os.Environ(), killDirEnv+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		after := rand.IntN(300)
		var acked [killWALs]int
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			if n == after {
				cmd.Process.Kill()
			}
			var wal, count int
			if _, err := fmt.Sscan(lines.Text(), &wal, &count); err != nil {
				t.Fatal(lines.Text(), err)
			}
			acked[wal] = count // including output that was in the pipe when it died
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("the process ended by itself")
		}
		checkKilled(t, dir, acked)
	}
}

// checkKilled truncates the WALs to their headers and recovers.
func checkKilled(t *testing.T, dir string, acked [killWALs]int) {
	t.Helper()
	for i := range acked {
		path := filepath.Join(dir, fmt.Sprintf("db%d-wal", i))
		if acked[i] > 0 {
			if err := os.Truncate(path, walHeaderSize); err != nil {
				t.Fatal(err)
			}
		}
	}
	l, r := mustOpen(t, dir, Options{})
	defer mustClose(t, l)
	for i, n := range acked {
		if n == 0 {
			continue
		}
		w := l.openTarget(filepath.Join(dir, fmt.Sprintf("db%d-wal", i)), false)
		if w.err != nil {
			t.Fatal(w.err)
		}
		defer w.close()
		if got := int((w.end - walHeaderSize) / w.header.frame()); got < n {
			t.Errorf("WAL %d: %d commits were acknowledged, %d are there: %+v", i, n, got, r)
		}
	}
}

// commitUntilKilled commits from several goroutines, one page at a time, and prints the durable
// commits, each line with one write. It makes at most killCommits.
func commitUntilKilled(t *testing.T, dir string) {
	l, _ := mustOpen(t, dir, Options{FirstSegments: killSegment})
	var wg sync.WaitGroup
	var commits atomic.Int64
	for i := range killWALs {
		w := newTestWAL(t, dir, fmt.Sprintf("db%d", i))
		w.attach(l)
		wg.Go(func() {
			for n := 1; commits.Add(1) <= killCommits; n++ {
				if err := w.commit(1); err != nil {
					t.Error(err)
					return
				}
				if _, err := fmt.Fprintln(os.Stdout, i, n); err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	time.Sleep(time.Hour) // until it is killed
}

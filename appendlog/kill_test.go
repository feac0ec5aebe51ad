// SPDX-License-Identifier: MIT

package appendlog

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// killDirEnv makes the test binary the process that is killed.
const killDirEnv = "RINGSIDE_TEST_APPEND_DIR"

// TestKilled kills processes that append: every record that they reported as durable is
// found.
// Promise: appendlog/acknowledged-record-found
func TestKilled(t *testing.T) {
	if dir := os.Getenv(killDirEnv); dir != "" {
		appendUntilKilled(dir)
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	acked := map[string]bool{}
	for life := range ringtest.Rounds(5, 2) {
		cmd := exec.Command(exe, "-test.run=^TestKilled$")
		cmd.Env = append(os.Environ(), killDirEnv+"="+dir, fmt.Sprintf("%s_LIFE=%d", killDirEnv, life))
		ringtest.KillAfter(t, cmd, 20+rand.IntN(400), func(line string) bool {
			acked[line] = true
			return true
		})
		checkSurvivors(t, dir, acked)
	}
}

func checkSurvivors(t *testing.T, dir string, acked map[string]bool) {
	t.Helper()
	a, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, a)
	found := map[string]bool{}
	for _, d := range contents(t, a) {
		found[strings.TrimRight(d, ".")] = true
	}
	if len(acked) < 20 {
		t.Errorf("only %d records were acknowledged", len(acked))
	}
	for d := range acked {
		if !found[d] {
			t.Errorf("%q was acknowledged and is lost", d)
		}
	}
}

// appendUntilKilled appends from several goroutines and prints each durable record, one
// line in one write.
func appendUntilKilled(dir string) {
	a, err := Open(dir, Options{SegmentSize: 32 << 10, Ahead: 8 << 10})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	life := os.Getenv(killDirEnv + "_LIFE")
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				d := fmt.Sprintf("life %s goroutine %d record %d", life, g, i)
				if _, err := a.Append([]byte(d + strings.Repeat(".", i%300))); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				os.Stdout.WriteString(d + "\n")
			}
		})
	}
	wg.Wait()
}

// SPDX-License-Identifier: MIT

package soak

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

func TestMain(m *testing.M) { os.Exit(ringtest.Main(m)) }

// soakBriefly runs all rows, or the rows in o, for a few short rounds.
func soakBriefly(t *testing.T, o Options) *Summary {
	t.Helper()
	if testing.Short() {
		t.Skip("loads the machine")
	}
	o.Dir, o.Seed = t.TempDir(), 7
	if o.For == 0 {
		o.For = 200 * time.Millisecond
	}
	if o.round == 0 {
		o.round = 100 * time.Millisecond
	}
	sum, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(o.Dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	return sum
}

// TestWithoutRings soaks the fallbacks of io_uring.
func TestWithoutRings(t *testing.T) {
	t.Setenv("RINGSIDE_BACKEND", "plain")
	sum := soakBriefly(t, Options{})
	if sum.Failed() || sum.Rounds == 0 || sum.Interrupted || len(sum.Uses) != 1 || !strings.Contains(sum.Uses[0], "fallbacks") {
		t.Errorf("%s", sum.Text())
	}
}

// grown holds the memory that a seeded bug leaks.
var grown [][]byte

// TestSeededBugs checks that a run finds each seeded bug.
func TestSeededBugs(t *testing.T) {
	defer func() { grown = nil }()
	before := look()
	var leaked []int
	hang := make(chan struct{})
	defer close(hang)
	var seen atomic.Int64
	spoil := func(where string) func(string, []byte) {
		return func(row string, p []byte) {
			// Several, because a single fault may be rolled back, or come too late to be
			// read.
			if row == where && seen.Add(1)%20 == 1 {
				p[len(p)/2]++
			}
		}
	}
	for _, tc := range []struct {
		name string
		o    Options
		says string
	}{
		{"byte of a connection", Options{Rows: []string{Sockets}, For: time.Hour, round: time.Minute, spoil: spoil(Sockets)}, "wrong byte"},
		{"byte of a database", Options{Rows: []string{SQLite}, For: time.Hour, round: time.Minute, spoil: spoil(SQLite)}, "wrong byte"},
		{"descriptor", Options{Rows: []string{Watch}, For: time.Hour, extra: func() {
			fd, err := syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
			if err == nil {
				leaked = append(leaked, fd)
			}
		}}, "leak: 1 descriptors are left at the end of round 1: /dev/null"},
		{"goroutine", Options{Rows: []string{Watch}, For: time.Hour, extra: func() {
			go func() { <-hang }()
		}}, "leak: 1 goroutines"},
		{"memory", Options{Rows: []string{Watch}, For: time.Hour, round: 20 * time.Millisecond, extra: func() {
			grown = append(grown, make([]byte, 4<<20))
		}}, "heap in use HAS GROWN"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			// Descriptors that the run before is still closing would hide those that leak.
			for end := time.Now().Add(settleTime); look().Descriptors > before.Descriptors; time.Sleep(time.Millisecond) {
				if runtime.GC(); time.Now().After(end) {
					t.Fatalf("%d descriptors before the run: %s", look().Descriptors, openFiles())
				}
			}
			seen.Store(0)
			settled = time.Millisecond
			defer func() { settled = settleTime }()
			sum := soakBriefly(t, tc.o)
			if !sum.Failed() || !strings.Contains(sum.Text(), tc.says) || !strings.HasPrefix(sum.Text(), "FAILED") {
				t.Errorf("%q is not in:\n%s", tc.says, sum.Text())
			}
			for _, fd := range leaked {
				_ = syscall.Close(fd)
			}
			leaked = nil
		})
	}
}

func TestNoDirectory(t *testing.T) {
	if _, err := Run(t.Context(), Options{For: time.Second, Dir: "/does/not/exist"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

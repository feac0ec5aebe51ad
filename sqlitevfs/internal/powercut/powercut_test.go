// SPDX-License-Identifier: MIT

package powercut_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/powercut"
	"github.com/ringside-io/ringside/sqlitevfs"
	sqlitecut "github.com/ringside-io/ringside/sqlitevfs/internal/powercut"
)

// The environment variables that reproduce a failure: the saved trace, and where it failed.
const (
	traceEnv = "RINGSIDE_POWERCUT_TRACE"
	seedEnv  = "RINGSIDE_POWERCUT_SEED"
	cutEnv   = "RINGSIDE_POWERCUT_CUT"
	stateEnv = "RINGSIDE_POWERCUT_STATE"
)

// explore checks states of a trace. A failure is reported with a way to reproduce it.
func explore(t *testing.T, trace *powercut.Trace, states int, check func(*powercut.State, string) error) {
	t.Helper()
	exploreSome(t, trace, states, 1, check)
}

// exploreSome checks only one of every n moments.
func exploreSome(t *testing.T, trace *powercut.Trace, states, every int, check func(*powercut.State, string) error) {
	t.Helper()
	exploreWith(t, trace, powercut.Explore{States: states, Every: every, Check: check})
}

func exploreWith(t *testing.T, trace *powercut.Trace, e powercut.Explore) {
	t.Helper()
	e.Seed, e.Dir = rand.Uint64(), fastDir(t)
	if slow { // but no fewer than some 40 operations of a short trace
		e.Every = max(e.Every, min(9*e.Every, len(trace.Ops)/40))
	}
	if path := os.Getenv(traceEnv); path != "" {
		var err error
		if trace, err = powercut.Load(path); err != nil {
			t.Fatal(err)
		}
		e.Seed, _ = strconv.ParseUint(os.Getenv(seedEnv), 10, 64)
		e.Cut, _ = strconv.Atoi(os.Getenv(cutEnv))
		e.Number, _ = strconv.Atoi(os.Getenv(stateEnv))
		e.Only = true
	}
	res, err := trace.Run(e)
	t.Logf("%d operations, %+v", len(trace.Ops), res)
	if err == nil {
		return
	}
	t.Error(err)
	if f, ok := powercut.IsFailure(err); ok {
		path := filepath.Join(os.TempDir(), "powercut-"+strconv.FormatUint(e.Seed, 10)+".trace")
		if err := trace.Save(path); err == nil {
			t.Logf("again: %s=%s %s=%d %s=%d %s=%d go test -run '^%s$'", traceEnv, path, seedEnv, e.Seed,
				cutEnv, f.State.Cut, stateEnv, f.State.Number, t.Name())
		}
	}
}

// fewer reduces a workload where each state costs more, or where time is short.
func fewer(commits int) int {
	switch {
	case testing.Short():
		return 1
	case slow:
		return (commits + 3) / 4
	}
	return commits
}

// finds checks states until one is refused, and returns it.
func finds(t *testing.T, trace *powercut.Trace, states int, check func(*powercut.State, string) error) *powercut.Failure {
	t.Helper()
	_, err := trace.Run(powercut.Explore{Seed: rand.Uint64(), States: states, Dir: fastDir(t), Check: check})
	if err == nil {
		return nil
	}
	f, ok := powercut.IsFailure(err)
	if !ok {
		t.Fatal(err)
	}
	return f
}

// stock checks states without any recovery by this package.
func stock(s *powercut.State, dir string) error { return judgeAll(s, dir, "db") }

// record runs a workload on this package's VFS, with the recorder below it, or on the
// default VFS.
func record(t *testing.T, k work, o *sqlitevfs.Options) *powercut.Trace {
	t.Helper()
	dir := fastDir(t)
	r := sqlitecut.NewRecorder(dir)
	name := register(t, r.VFS(nil))
	if o != nil {
		o.Base = name
		name += "-ours"
		if err := sqlitevfs.Register(name, *o); err != nil {
			t.Fatal(err)
		}
	}
	k.run(t, r, dir, "db", name)
	return r.Trace()
}

var modes = []string{"DELETE", "TRUNCATE", "PERSIST", "WAL"}

// TestOurs cuts the power of this package's VFS.
// Promise: sqlitevfs/committed-transaction-found
func TestOurs(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			explore(t, record(t, work{mode: mode, commits: fewer(12)}, &sqlitevfs.Options{}), 600, stock)
		})
		t.Run(mode+"-spill", func(t *testing.T) {
			explore(t, record(t, work{mode: mode, commits: fewer(8), spill: true}, &sqlitevfs.Options{}), 400, stock)
		})
	}
}

// TestDefaultLosesEntries shows which directory entries the default VFS does not sync.
func TestDefaultLosesEntries(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			f := finds(t, record(t, work{mode: mode, commits: 6}, nil), 2000, stock)
			if f == nil {
				t.Fatal("no commit was lost: is the default VFS repaired?")
			}
			t.Log(f)
		})
	}
}

// SPDX-License-Identifier: MIT

package suite

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/peers/ycsb"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

// TestPebbleCells makes one database, and gives both engines of a pair the same round.
func TestPebbleCells(t *testing.T) {
	w, opts := newWorld(), only(t, namePebble)
	w.pebble = true
	opts.Caches = []string{CacheHot, CacheCold}
	run, err := File(t.Context(), opts, w.Env)
	if want := 2 * len(ycsb.Mixes()); err != nil || len(run.Cells) != want {
		t.Fatalf("%d cells, want %d, %v", len(run.Cells), want, err)
	}
	made := w.jobs[1] // the first job determines the backend
	if of[workload.YCSB](made) == nil || of[workload.YCSB](made).Mix != "" || made.Engine != engine.NameOS || filepath.Dir(filepath.Dir(of[workload.YCSB](made).Dir)) != opts.Dir {
		t.Fatalf("the database is made by %+v, %+v", made, of[workload.YCSB](made))
	}
	rounds := w.jobs[2:]
	if want := 2 * opts.Pairs * len(run.Cells); len(rounds) != want {
		t.Errorf("%d rounds, want %d", len(rounds), want)
	}
	for i, j := range rounds {
		y := of[workload.YCSB](j)
		if y == nil || y.Dir != of[workload.YCSB](made).Dir || y.Records != of[workload.YCSB](made).Records || j.Goroutines != pebbleClients ||
			y.Cold != (j.Warm == 0) || j.Measure != pebbleWindows*opts.Duration {
			t.Fatalf("round %+v of %+v", j, y)
		}
		if other := rounds[i^1]; *y != *of[workload.YCSB](other) || j.Engine == other.Engine || j.Measure != other.Measure {
			t.Fatalf("a pair of %+v and %+v", j, other)
		}
	}
	wantEmpty(t, opts.Dir)
}

// TestPebbleIsLeftOut: each reason is reported, and nothing is written.
func TestPebbleIsLeftOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for reason, change := range map[string]func(*world, *FileOptions){
		ycsb.ErrMissing.Error(): func(w *world, _ *FileOptions) { w.pebble = false },
		"the page cache must hold 572 MiB, and 100 MiB of memory are available": func(w *world, _ *FileOptions) {
			w.availableMemory = func() int64 { return 100 << 20 }
		},
		"it writes, and the file of --path is only read: choose a directory with --dir": func(_ *world, o *FileOptions) {
			o.Path, o.Dir, o.Size = path, "", 0
		},
	} {
		w, opts := newWorld(), only(t, namePebble)
		w.pebble, opts.Caches, opts.Duration = true, []string{CacheHot}, time.Millisecond
		change(w, &opts)
		run, err := File(t.Context(), opts, w.Env)
		want := len(ycsb.Mixes())
		if !w.pebble {
			want = 1 // the workload, not each of its cells
		}
		if err == nil || len(run.Skipped) != want || run.Skipped[0].Reason != reason {
			t.Errorf("%v, skipped %+v, want %q", err, run.Skipped, reason)
		}
	}
}

// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/fio"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

// only returns options that measure one workload.
func only(t *testing.T, name string) FileOptions {
	opts := smallFile(t)
	opts.Workloads = []string{name}
	opts.Pairs = 2
	return opts
}

func TestWorkloadsAreChosen(t *testing.T) {
	all := []string{nameRandRead, nameBatch, nameBurner, nameOpen, nameAppend, nameRandWrite, nameSync}
	full := append(slices.Clone(all), namePebble)
	for _, tc := range []struct {
		opts FileOptions
		want []string
	}{
		{FileOptions{}, all},
		{FileOptions{Brief: true}, []string{nameRandRead, nameBatch, nameAppend}},
		{FileOptions{Full: true}, full},
		{FileOptions{Workloads: []string{namePebble}}, []string{namePebble}},
		{FileOptions{Blocks: []int{4096}}, all[:1]},
		{FileOptions{Caches: []string{CacheDirect}}, all[:1]},
		{FileOptions{Workloads: []string{nameAppend, nameBatch}}, []string{nameBatch, nameAppend}},
		{FileOptions{Workloads: all, Caches: []string{CacheHot}}, []string{nameRandRead, nameBatch, nameOpen, nameAppend, nameRandWrite, nameSync}},
	} {
		var got []string
		for _, c := range tc.opts.withDefaults().cells() {
			if !slices.Contains(got, c.workload) {
				got = append(got, c.workload)
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%+v: %v, want %v", tc.opts, got, tc.want)
		}
	}
	if err := (FileOptions{Workloads: []string{"dance"}}).Validate(); err == nil || !strings.Contains(err.Error(), nameRandWrite) {
		t.Errorf("unknown workload: %v", err)
	}
}

// TestDefaultWorkloadsFitTheirTime adds up the times of the workloads other than random reads, with
// 120 ms per round for its process.
func TestDefaultWorkloadsFitTheirTime(t *testing.T) {
	o := FileOptions{Workloads: []string{nameBatch, nameBurner, nameOpen, nameAppend, nameRandWrite, nameSync}}.withDefaults()
	f := &fileRun{opts: o, fio: "fio"}
	rounds := 0
	for _, c := range o.cells() {
		rounds += o.Pairs * len(workloadOf(c).engines(f, c))
	}
	if total := time.Duration(rounds) * (o.warm() + o.Duration + 120*time.Millisecond); total > 100*time.Second {
		t.Errorf("%d rounds take %v", rounds, total)
	}
}

func TestBatchCells(t *testing.T) {
	w, opts := newWorld(), only(t, nameBatch)
	opts.NoFio = false
	w.findFio = func() (string, error) { return "/bin/fio", nil }
	var rounds []fio.RandRead
	w.fio = func(_ context.Context, _ string, r fio.RandRead) (measure.Sample, error) {
		if r.Engine == fio.NameBatched {
			rounds = append(rounds, r)
		}
		return measure.Sample{Ops: 1, Elapsed: 1}, nil
	}
	run, err := File(t.Context(), opts, w.Env)
	if err != nil || len(run.Cells) != 4 {
		t.Fatalf("%d cells, %v", len(run.Cells), err)
	}
	for _, c := range run.Cells {
		engines := 2
		if c.Params["cache"] == CacheDirect {
			engines = 3
		}
		if c.Workload != nameBatch || len(c.Series) != engines || c.Params[paramCount] == nil {
			t.Errorf("cell %v with %d engines", c.Params, len(c.Series))
		}
	}
	if len(rounds) != 2*opts.Pairs || rounds[0].Depth != 16 || rounds[0].Span != opts.Size {
		t.Errorf("rounds of fio: %+v", rounds)
	}
	for _, j := range w.jobs[1:] {
		if b := of[workload.Batch](j); b == nil || b.Count < 16 || b.Content == nil || j.Goroutines != 1 || b.Direct && b.Span != opts.Size {
			t.Fatalf("job %+v of %+v", j, b)
		}
	}
	wantEmpty(t, opts.Dir)
}

func TestBatchNeedsMemoryForItsBuffers(t *testing.T) {
	w, opts := newWorld(), only(t, nameBatch)
	w.availableMemory = func() int64 { return 8 << 20 }
	run, err := File(t.Context(), opts, w.Env)
	if err != nil || len(run.Cells) != 3 || len(run.Skipped) != 1 {
		t.Errorf("%d cells, skipped %v, %v", len(run.Cells), run.Skipped, err)
	}
}

func TestAppendCells(t *testing.T) {
	w, opts := newWorld(), only(t, nameAppend)
	inner, dirs := w.Workers.Round, map[string]bool{}
	w.Workers.Round = func(ctx context.Context, j workload.Job) (measure.Sample, error) {
		if of[workload.Append](j) != nil {
			dirs[of[workload.Append](j).Dir] = true
			if info, err := os.Stat(of[workload.Append](j).Dir); err != nil || !info.IsDir() || filepath.Dir(of[workload.Append](j).Dir) != opts.Dir {
				t.Errorf("log in %s: %v", of[workload.Append](j).Dir, err)
			}
			// A round that was killed leaves its log behind.
			if err := os.WriteFile(filepath.Join(of[workload.Append](j).Dir, "log"), nil, 0o600); err != nil {
				t.Error(err)
			}
		}
		return inner(ctx, j)
	}
	run, err := File(t.Context(), opts, w.Env)
	if err != nil || len(run.Cells) != 6 || len(dirs) != 1 {
		t.Fatalf("%d cells in %v, %v", len(run.Cells), dirs, err)
	}
	want := []string{engine.NameOS, engine.NameOSMutex, engine.NameRingside}
	for i, j := range w.jobs[1:] {
		if j.Engine != inTurn(i, opts.Pairs, want...) || of[workload.Append](j).Record != []int{128, k4}[i/18] || of[workload.Append](j).Seed != opts.Seed+uint64(i/3%2) {
			t.Fatalf("round %d: %+v of %+v", i, j, of[workload.Append](j))
		}
	}
	if p := run.Cells[2].Params; p["goroutines"] != 64 || p[paramRecord] != 128 || p["block"] != nil {
		t.Errorf("parameters %v", p)
	}
	wantEmpty(t, opts.Dir)
}

func TestBurnerCells(t *testing.T) {
	w, opts := newWorld(), only(t, nameBurner)
	run, err := File(t.Context(), opts, w.Env)
	cells := len(slices.Compact([]int{1, runtime.GOMAXPROCS(0)}))
	if err != nil || len(run.Cells) != cells {
		t.Fatalf("%d cells, %v", len(run.Cells), err)
	}
	for _, j := range w.jobs[1:] {
		if b := of[workload.Burner](j); b == nil || b.Burners < 1 || !b.Direct || j.Goroutines != 32 {
			t.Fatalf("job %+v of %+v", j, b)
		}
	}
	opts.Caches = []string{CacheHot}
	if _, err := File(t.Context(), opts, w.Env); !errors.Is(err, ErrNothing) {
		t.Errorf("reads of cached data: %v", err)
	}
}

func TestRandWriteCells(t *testing.T) {
	w, opts := newWorld(), only(t, nameRandWrite)
	inner, stamps := w.Workers.Round, map[uint64]bool{}
	w.Workers.Round = func(ctx context.Context, j workload.Job) (measure.Sample, error) {
		if r := of[workload.RandWrite](j); r != nil {
			stamps[r.Stamp] = true
			if info, err := os.Stat(r.Path); err != nil || info.Size() < r.Span || r.Span == 0 {
				t.Errorf("overwrites %d bytes of %s: %v", r.Span, r.Path, err)
			}
		}
		return inner(ctx, j)
	}
	run, err := File(t.Context(), opts, w.Env)
	if err != nil || len(run.Cells) != 4 {
		t.Fatalf("%d cells, %v", len(run.Cells), err)
	}
	jobs := w.jobs[1:]
	if len(stamps) != len(jobs) {
		t.Errorf("%d rounds have %d stamps", len(jobs), len(stamps))
	}
	if a, b := of[workload.RandWrite](jobs[0]), of[workload.RandWrite](jobs[1]); a.Seed != b.Seed || a.Path != b.Path || jobs[0].Engine == jobs[1].Engine {
		t.Errorf("halves of a pair: %+v and %+v", a, b)
	}
	wantEmpty(t, opts.Dir)
}

// grid returns the cells of the options as text: the number of goroutines, the state of the cache and
// the block.
func grid(o FileOptions) []string {
	var out []string
	for _, c := range o.withDefaults().cells() {
		out = append(out, fmt.Sprintf("%d %s %d", c.goroutines, c.cache, c.block))
	}
	return out
}

func TestOpenCells(t *testing.T) {
	for _, tc := range []struct {
		opts FileOptions
		want []string
	}{
		{FileOptions{}, []string{"1  0", "1 hot 4096", "1 direct 4096"}},
		{FileOptions{Full: true}, []string{"1  0", "16  0", "1 hot 4096", "16 hot 4096", "1 direct 4096", "16 direct 4096"}},
		{FileOptions{Brief: true}, nil},
		{FileOptions{Goroutines: []int{3}}, []string{"3  0", "3 hot 4096", "3 direct 4096"}},
		{FileOptions{Blocks: []int{8192}}, []string{"1 hot 8192", "1 direct 8192"}},
		{FileOptions{Caches: []string{CacheDirect, CacheCold}}, []string{"1 direct 4096"}},
		{FileOptions{Caches: []string{CacheCold}}, nil},
	} {
		tc.opts.Workloads = []string{nameOpen}
		if got := grid(tc.opts); !slices.Equal(got, tc.want) {
			t.Errorf("%+v: %q, want %q", tc.opts, got, tc.want)
		}
	}
	w, opts := newWorld(), only(t, nameOpen)
	run, err := File(t.Context(), opts, w.Env)
	if err != nil || len(run.Cells) != 3 {
		t.Fatalf("%d cells, %v", len(run.Cells), err)
	}
	if p := run.Cells[0].Params; p["block"] != nil || p["cache"] != nil || p["goroutines"] != 1 {
		t.Errorf("parameters %v", p)
	}
	for i, j := range w.jobs[1:] {
		if r := of[workload.Open](j); r == nil || r.Content == nil || r.Cold || (r.Block > 0) != (i >= 4) || r.Direct != (i >= 8) ||
			r.Seed != opts.Seed+uint64(i/2%2) || j.Engine != inTurn(i, opts.Pairs, engine.NameOS, engine.NameRingside) {
			t.Fatalf("round %d: %+v of %+v", i, j, r)
		}
	}
	wantEmpty(t, opts.Dir)
}

func TestSyncCells(t *testing.T) {
	for _, tc := range []struct {
		opts FileOptions
		want []string
	}{
		{FileOptions{}, []string{"1 hot 4096", "16 hot 4096"}},
		{FileOptions{Full: true}, []string{"1 hot 4096", "16 hot 4096", "64 hot 4096"}},
		{FileOptions{Brief: true}, nil},
		{FileOptions{Goroutines: []int{3}, Blocks: []int{8192}}, []string{"3 hot 8192"}},
		{FileOptions{Caches: []string{CacheDirect}}, nil},
	} {
		tc.opts.Workloads = []string{nameSync}
		if got := grid(tc.opts); !slices.Equal(got, tc.want) {
			t.Errorf("%+v: %q, want %q", tc.opts, got, tc.want)
		}
	}
	w, opts := newWorld(), only(t, nameSync)
	opts.Workloads, opts.Full = append(opts.Workloads, nameRandWrite), true
	run, err := File(t.Context(), opts, w.Env)
	if err != nil || len(run.Cells) != 8+3 {
		t.Fatalf("%d cells, %v", len(run.Cells), err)
	}
	engines := map[string][]string{
		nameRandWrite: {engine.NameOS, engine.NameRingside}, nameSync: {engine.NameOS, engine.NameRingside, engine.NameRing},
	}
	seen := map[string]int{}
	for i, j := range w.jobs[1:] {
		r, want := of[workload.RandWrite](j), inTurn(seen[j.Workload], opts.Pairs, engines[j.Workload]...)
		seen[j.Workload]++
		if r == nil || r.Sync != (j.Workload == nameSync) || r.Sync && r.Direct || r.Path != of[workload.RandWrite](w.jobs[1]).Path || j.Engine != want {
			t.Fatalf("round %d: %+v of %+v", i, j, r)
		}
	}
	wantEmpty(t, opts.Dir)
}

// TestSpaceForWrites checks that the two workloads that overwrite need one file.
func TestSpaceForWrites(t *testing.T) {
	const size = datafile.MinSize
	for _, tc := range []struct {
		works []string
		files int64
	}{
		{[]string{nameRandRead}, 1}, {[]string{nameSync}, 2}, {[]string{nameSync, nameRandWrite}, 2}, {[]string{nameSync, nameAppend}, 3},
	} {
		if _, bytes := (FileOptions{Dir: "d", Workloads: tc.works}).Space(); bytes != tc.files*size {
			t.Errorf("%v: %d bytes, want %d", tc.works, bytes, tc.files*size)
		}
	}
}

// TestUsersFileIsNotWritten runs all workloads on a file that the user named.
func TestUsersFileIsNotWritten(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "precious")
	if err := os.WriteFile(path, make([]byte, 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld()
	run, err := File(t.Context(), FileOptions{Path: path, Seed: 1, Timing: Timing{Pairs: 1}}, w.Env)
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range w.jobs {
		if of[workload.Append](j) != nil || of[workload.RandWrite](j) != nil {
			t.Fatalf("job %+v", j)
		}
	}
	skipped := map[string]bool{}
	for _, s := range run.Skipped {
		skipped[s.Workload] = skipped[s.Workload] || strings.Contains(s.Reason, "--dir")
	}
	if !skipped[nameAppend] || !skipped[nameRandWrite] || !skipped[nameSync] || skipped[nameBatch] || skipped[nameOpen] {
		t.Errorf("skipped %v", run.Skipped)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("next to the file: %v, %v", entries, err)
	}
}

// TestInterruptRemovesWhatIsOverwritten interrupts a run after it has made its second file.
func TestInterruptRemovesWhatIsOverwritten(t *testing.T) {
	w, opts := newWorld(), only(t, nameRandWrite)
	ctx, cancel := context.WithCancel(t.Context())
	w.Workers.Round = func(ctx context.Context, j workload.Job) (measure.Sample, error) {
		if of[workload.RandWrite](j) != nil {
			cancel()
		}
		return measure.Sample{Ops: 1, Elapsed: 1}, ctx.Err()
	}
	if _, err := File(ctx, opts, w.Env); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	wantEmpty(t, opts.Dir)
}

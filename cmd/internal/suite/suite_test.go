// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/fastdev"
	"github.com/ringside-io/ringside/cmd/internal/fio"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

func init() { hostStolen = nil }

// fiveRounds measures in five rounds. Without a number of rounds a run lasts for its time.
var fiveRounds = Timing{Pairs: 5}

// of returns the work of a job, or nil if it is of another type.
func of[T any](j workload.Job) *T {
	w, _ := any(j.Work).(*T)
	return w
}

// world is an Env in which everything works, rounds take no time, and jobs are recorded.
type world struct {
	Env
	jobs []workload.Job
}

func newWorld() *world {
	w := &world{}
	w.Env = Env{
		Workers: Workers{Round: func(_ context.Context, j workload.Job) (measure.Sample, error) {
			w.jobs = append(w.jobs, j)
			s := measure.Sample{
				Ops: 100, Bytes: 100 * 4096, Elapsed: time.Second, Heap: &measure.Heap{},
				Backend: "io_uring", Reason: "a test",
			}
			if of[workload.RandRead](j) != nil && of[workload.RandRead](j).Cold {
				s.DeviceReads = s.Bytes
			}
			return s, nil
		}},
		machine: machine{
			probeDirect: func(string) error { return nil },
			probeEvict:  func(string) error { return nil },
			fastDevice: func(context.Context, int64) (FastDevice, error) {
				return nil, fmt.Errorf("%w: this is a test", fastdev.ErrUnavailable)
			},
			findFio:         func() (string, error) { return "", fio.ErrMissing },
			availableMemory: func() int64 { return 0 },
		},
	}
	return w
}

// smallFile are options for a run of random reads that writes a small file only.
func smallFile(t *testing.T) FileOptions {
	return FileOptions{
		Dir: t.TempDir(), Size: 4 << 20, Seed: 1, Timing: Timing{Pairs: 5, Duration: time.Millisecond}, NoFio: true, Workloads: []string{nameRandRead},
	}
}

func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// defaultCells is the number of cells of random reads in a default run: hot, direct and cold.
const defaultCells = 4 + 5 + 3

func TestFileMeasuresTheDefaultGrid(t *testing.T) {
	w, opts := newWorld(), smallFile(t)
	run, err := File(t.Context(), opts, w.Env)
	if err != nil || len(run.Skipped) != 0 {
		t.Fatalf("%v, skipped %v", err, run.Skipped)
	}
	if len(run.Cells) != defaultCells {
		t.Errorf("%d cells, want %d", len(run.Cells), defaultCells)
	}
	if h := run.Host; h.Backend != "io_uring" || h.Reason != "a test" || h.Pairs != 5 || !h.Verified || h.FileBytes != opts.Size {
		t.Errorf("host %+v", h)
	}
	rounds := w.jobs[1:] // The first job reports the backend.
	if len(rounds) != defaultCells*10 {
		t.Fatalf("%d rounds", len(rounds))
	}
	for i, j := range rounds {
		pair := i / 2 % 5
		want := inTurn(i, 5, engine.NameOS, engine.NameRingside)
		if j.Engine != want || of[workload.RandRead](j).Seed != opts.Seed+uint64(pair) || *of[workload.RandRead](j).Content != opts.Seed {
			t.Fatalf("round %d: engine %s, seed %d", i, j.Engine, of[workload.RandRead](j).Seed)
		}
	}
	wantEmpty(t, opts.Dir)
}

func TestCells(t *testing.T) {
	for _, tc := range []struct {
		opts FileOptions
		want int
	}{
		{FileOptions{}, defaultCells},
		{FileOptions{Full: true, Fast: FastNone}, 30 + 30 + 8},
		{FileOptions{Full: true}, 30 + 30 + 8 + 15},
		{FileOptions{Brief: true}, 3},
		{FileOptions{Caches: []string{CacheHot}}, 4},
		{FileOptions{Caches: []string{CacheCold}}, 3},
		{FileOptions{Goroutines: []int{32}}, 6 + 6 + 2},
		{FileOptions{Blocks: []int{8192}}, 6},
		{FileOptions{Blocks: []int{8192}, Goroutines: []int{1, 2, 3}, Caches: []string{CacheDirect}}, 3},
		{FileOptions{Blocks: []int{8192}, Full: true, Fast: FastNone}, 5 + 5 + 4},
		{FileOptions{Fast: FastAdd}, defaultCells + 4},
		{FileOptions{Fast: FastOnly}, 4},
		{FileOptions{Fast: FastOnly, Full: true}, 15},
		{FileOptions{Fast: FastOnly, Goroutines: []int{2}}, 6},
		{FileOptions{Fast: FastOnly, Caches: []string{CacheCold}}, 8},
	} {
		tc.opts.Workloads = []string{nameRandRead}
		cells := tc.opts.withDefaults().cells()
		if got := len(cells); got != tc.want {
			t.Errorf("%+v: %d cells, want %d", tc.opts, got, tc.want)
		}
		seen := map[string]bool{}
		for _, c := range cells {
			if seen[fmt.Sprint(c)] {
				t.Errorf("%+v: %v twice", tc.opts, c)
			}
			seen[fmt.Sprint(c)] = true
		}
	}
	if got := (FileOptions{}).withDefaults().Size; got != directSize {
		t.Errorf("default size %d", got)
	}
	if got := (FileOptions{Caches: []string{CacheHot}}).withDefaults().Size; got != hotSpan {
		t.Errorf("default size when hot only %d", got)
	}
}

// TestDefaultRunFitsItsTime adds up the planned times: 90 seconds less 15 for the file and
// 120 ms of each round for its process.
func TestDefaultRunFitsItsTime(t *testing.T) {
	o := FileOptions{Workloads: []string{nameRandRead}}.withDefaults()
	f := &fileRun{opts: o, fio: "/bin/fio"}
	rounds := 0
	for _, c := range o.cells() {
		rounds += o.Pairs * len(workloadOf(c).engines(f, c))
	}
	if total := time.Duration(rounds) * (o.warm() + o.Duration + 120*time.Millisecond); total > time.Minute {
		t.Errorf("the default run takes %v", total)
	}
}

// TestDefaultGridHasTheRegimes checks that the grid has the points that decide between
// engines.
func TestDefaultGridHasTheRegimes(t *testing.T) {
	for name, o := range map[string]FileOptions{"default": {}, "full": {Full: true}} {
		o.Workloads = []string{nameRandRead}
		var have []string
		for _, c := range o.withDefaults().cells() {
			have = append(have, fmt.Sprint(c))
		}
		for _, want := range []cell{
			{cache: CacheDirect, goroutines: 32}, {cache: CacheDirect, goroutines: 512},
			{cache: CacheCold, goroutines: 32}, {cache: CacheCold, goroutines: 128}, {cache: CacheHot, goroutines: 1},
		} {
			want.workload, want.storage, want.block = nameRandRead, StorageDisk, 4096
			if !slices.Contains(have, fmt.Sprint(want)) {
				t.Errorf("%v grid: no %v in %v", name, want, have)
			}
		}
	}
}

func TestValidate(t *testing.T) {
	for _, o := range []FileOptions{
		{Path: "x", Dir: "y"}, {Path: "x", Size: 1 << 20}, {Full: true, Brief: true}, {Size: 4096}, {Size: 1<<20 + 1},
		{Blocks: []int{0}}, {Blocks: []int{4097}}, {Blocks: []int{1 << 30}}, {Goroutines: []int{0}},
		{Goroutines: []int{1 << 20}}, {Caches: []string{"warm"}}, {Timing: Timing{Pairs: -1}}, {Timing: Timing{Duration: -1}},
		{Workloads: []string{"juggling"}}, {Fast: "slow"}, {Fast: FastOnly, Path: "x"}, {FioAlso: []string{"fio-slow"}},
	} {
		if o.Validate() == nil {
			t.Errorf("%+v accepted", o)
		}
	}
	if err := (FileOptions{Blocks: allBlocks, Goroutines: []int{1, 512}, Caches: []string{CacheHot, CacheDirect, CacheCold},
		Workloads: []string{nameRandRead}, Fast: FastOnly, FioAlso: []string{fio.NameFixed, fio.NameBatched}}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestNoODirectIsSkippedByName(t *testing.T) {
	w, opts := newWorld(), smallFile(t)
	w.probeDirect = func(string) error { return fmt.Errorf("%w: EINVAL", workload.ErrNoDirect) }
	run, err := File(t.Context(), opts, w.Env)
	if err != nil || len(run.Cells) != defaultCells-5 {
		t.Fatalf("%d cells, %v", len(run.Cells), err)
	}
	if len(run.Skipped) != 1 || run.Skipped[0].Params["cache"] != CacheDirect || !strings.Contains(run.Skipped[0].Reason, "O_DIRECT") {
		t.Errorf("skipped %v", run.Skipped)
	}
	opts.Caches = []string{CacheDirect}
	if run, err := File(t.Context(), opts, w.Env); !errors.Is(err, ErrNothing) || len(run.Skipped) != 1 {
		t.Errorf("direct only: %v, skipped %v", err, run.Skipped)
	}
	w.probeDirect = func(string) error { return syscall.EIO }
	if _, err := File(t.Context(), opts, w.Env); !errors.Is(err, syscall.EIO) {
		t.Errorf("a broken device: %v", err)
	}
	wantEmpty(t, opts.Dir)
}

func TestNoSpaceIsSkippedByName(t *testing.T) {
	w, opts := newWorld(), smallFile(t)
	w.maker.Free = func(string) (int64, error) { return 1 << 20, nil }
	run, err := File(t.Context(), opts, w.Env)
	if !errors.Is(err, ErrNothing) || len(run.Skipped) != 1 || !strings.Contains(run.Skipped[0].Reason, "not enough space") {
		t.Errorf("%v, skipped %v", err, run.Skipped)
	}
	// The device becomes full in the middle, whatever statfs reported.
	w.maker.Free = func(string) (int64, error) { return 1 << 40, nil }
	w.maker.Create = func(ctx context.Context, dir string, size int64, seed uint64, _ func(int64)) (*datafile.File, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		_, err := datafile.Create(ctx, dir, size, seed, func(int64) { cancel(syscall.ENOSPC) })
		if err != nil {
			err = errors.Join(err, context.Cause(ctx))
		}
		return nil, err
	}
	run, err = File(t.Context(), opts, w.Env)
	if !errors.Is(err, ErrNothing) || len(run.Skipped) != 1 || !strings.Contains(run.Skipped[0].Reason, "filled up") ||
		!strings.HasSuffix(run.Skipped[0].Reason, ": choose another directory with --dir, a smaller file with --size, or an existing one with --path") {
		t.Errorf("%v, skipped %v", err, run.Skipped)
	}
	wantEmpty(t, opts.Dir)
}

func TestLessSpaceMakesASmallerFile(t *testing.T) {
	w, opts := newWorld(), smallFile(t)
	opts.Size = 2 * datafile.MinSize
	const half = datafile.MinSize
	w.maker.Create = func(ctx context.Context, dir string, size int64, seed uint64, written func(int64)) (*datafile.File, error) {
		if size > half {
			return nil, syscall.ENOSPC
		}
		return datafile.Create(ctx, dir, size, seed, written)
	}
	opts.Caches = []string{CacheHot}
	run, err := File(t.Context(), opts, w.Env)
	if err != nil || run.Host.FileBytes != half || len(run.Notes) != 1 {
		t.Errorf("file of %d bytes, notes %v, %v", run.Host.FileBytes, run.Notes, err)
	}
	wantEmpty(t, opts.Dir)
}

func TestReadOnlyDirectoryIsSkippedByName(t *testing.T) {
	w, opts := newWorld(), smallFile(t)
	w.maker.Create = func(context.Context, string, int64, uint64, func(int64)) (*datafile.File, error) {
		return nil, &os.PathError{Op: "open", Path: opts.Dir, Err: syscall.EROFS}
	}
	run, err := File(t.Context(), opts, w.Env)
	if !errors.Is(err, ErrNothing) || len(run.Skipped) != 1 {
		t.Fatalf("%v, skipped %v", err, run.Skipped)
	}
	for _, want := range []string{"--dir", "--path", opts.Dir} {
		if !strings.Contains(run.Skipped[0].Reason, want) {
			t.Errorf("the reason does not mention %s: %s", want, run.Skipped[0].Reason)
		}
	}
}

func TestCellsThatCannotRunAreSkippedByName(t *testing.T) {
	w, opts := newWorld(), smallFile(t)
	opts.Blocks, opts.Goroutines, opts.Caches = []int{4096, 8 << 20}, []int{1}, []string{CacheHot}
	run, err := File(t.Context(), opts, w.Env)
	if err != nil || len(run.Cells) != 1 || len(run.Skipped) != 1 || run.Skipped[0].Params["block"] != 8<<20 {
		t.Errorf("%d cells, skipped %v, %v", len(run.Cells), run.Skipped, err)
	}
	w.availableMemory = func() int64 { return 16 << 20 }
	opts.Blocks, opts.Goroutines = []int{4096, 1 << 20}, []int{64}
	run, err = File(t.Context(), opts, w.Env)
	if err != nil || len(run.Cells) != 1 || len(run.Skipped) != 1 || !strings.Contains(run.Skipped[0].Reason, "memory") {
		t.Errorf("%d cells, skipped %v, %v", len(run.Cells), run.Skipped, err)
	}
}

func TestUsersFileIsOnlyRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "precious")
	content := []byte(strings.Repeat("precious", 64<<10))
	if err := os.WriteFile(path, content, 0o400); err != nil {
		t.Fatal(err)
	}
	w := newWorld()
	run, err := File(t.Context(), FileOptions{Path: path, Seed: 1, Timing: fiveRounds, Blocks: []int{4096}, NoFio: true, Workloads: []string{nameRandRead}}, w.Env)
	if err != nil || run.Host.Verified || run.Host.FileBytes != int64(len(content)) {
		t.Errorf("%v, host %+v", err, run.Host)
	}
	for _, j := range w.jobs[1:] {
		if of[workload.RandRead](j).Path != path || of[workload.RandRead](j).Content != nil {
			t.Fatalf("job %+v", of[workload.RandRead](j))
		}
	}
	if after, err := os.ReadFile(path); err != nil || !slices.Equal(after, content) {
		t.Errorf("the file was changed: %v", err)
	}
	run, err = File(t.Context(), FileOptions{Path: path + "x", Seed: 1, Timing: fiveRounds}, w.Env)
	if !errors.Is(err, ErrNothing) || len(run.Skipped) != 1 {
		t.Errorf("missing file: %v, skipped %v", err, run.Skipped)
	}
}

func TestInterruptKeepsWhatIsCompleteAndCleansUp(t *testing.T) {
	w, opts := newWorld(), smallFile(t)
	ctx, cancel := context.WithCancel(t.Context())
	inner := w.Workers.Round
	w.Workers.Round = func(ctx context.Context, j workload.Job) (measure.Sample, error) {
		s, err := inner(ctx, j)
		if len(w.jobs) == 1+10+3 {
			cancel()
			return measure.Sample{}, ctx.Err()
		}
		return s, err
	}
	run, err := File(ctx, opts, w.Env)
	if !errors.Is(err, context.Canceled) || len(run.Cells) != 1 || !strings.Contains(err.Error(), fmt.Sprintf("1 of %d cells", defaultCells)) {
		t.Errorf("%d cells, %v", len(run.Cells), err)
	}
	wantEmpty(t, opts.Dir)
	if run, err := File(ctx, opts, w.Env); !errors.Is(err, context.Canceled) || len(run.Skipped) != 0 {
		t.Errorf("interrupted at once: %v, skipped %v", err, run.Skipped)
	}
	wantEmpty(t, opts.Dir)
}

func TestFailureNamesTheCell(t *testing.T) {
	w, opts := newWorld(), smallFile(t)
	w.Workers.Round = func(_ context.Context, j workload.Job) (measure.Sample, error) {
		if of[workload.RandRead](j) != nil && j.Engine == engine.NameRingside {
			return measure.Sample{}, &datafile.MismatchError{Offset: 8192, What: "bytes of offset 0"}
		}
		return measure.Sample{Ops: 1, Elapsed: 1}, nil
	}
	_, err := File(t.Context(), opts, w.Env)
	var mismatch *datafile.MismatchError
	if !errors.As(err, &mismatch) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"randread, page cache hot", "1 goroutine", "4 KiB", "engine ringside", "offset 8192"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %q", want, err)
		}
	}
	wantEmpty(t, opts.Dir)
}

func TestColdReadsInAHotCellAreNoted(t *testing.T) {
	w, opts := newWorld(), smallFile(t)
	opts.Blocks, opts.Goroutines, opts.Caches, opts.Pairs = []int{4096}, []int{1}, []string{CacheHot}, 3
	inner := w.Workers.Round
	w.Workers.Round = func(ctx context.Context, j workload.Job) (measure.Sample, error) {
		s, err := inner(ctx, j)
		s.DeviceReads = s.Bytes / 2
		return s, err
	}
	run, err := File(t.Context(), opts, w.Env)
	if err != nil || len(run.Notes) != 2 || !strings.Contains(run.Notes[0], "not hot") {
		t.Errorf("notes %v, %v", run.Notes, err)
	}
}

func TestStaleFilesAreSwept(t *testing.T) {
	w, opts := newWorld(), smallFile(t)
	if err := os.WriteFile(filepath.Join(opts.Dir, "ringside-bench-0123456789abcdef.dat"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	opts.Caches = []string{CacheHot}
	run, err := File(t.Context(), opts, w.Env)
	if err != nil || len(run.Notes) != 1 || !strings.Contains(run.Notes[0], "0123456789abcdef") {
		t.Errorf("notes %v, %v", run.Notes, err)
	}
	wantEmpty(t, opts.Dir)
}

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
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/peers/liburing"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

// ringWorld is a Env in which everything works, rounds take no time, and jobs are
// recorded. It is its own peer.
type ringWorld struct {
	Env
	jobs    []workload.Job
	trials  []workload.Job
	refuses string // the ring on which the peer fails
	reason  string // reported by the peer
	removed int
}

func newRingWorld() *ringWorld {
	w := &ringWorld{}
	w.Env = Env{
		Workers: Workers{Round: func(_ context.Context, j workload.Job) (measure.Sample, error) {
			w.jobs = append(w.jobs, j)
			return measure.Sample{Ops: 110, Elapsed: time.Second, Heap: &measure.Heap{}}, nil
		}},
		machine: machine{
			probeRing:   func(string) error { return nil },
			buildRing:   func(context.Context) (Peer, error) { return w, nil },
			probeDirect: func(string) error { return nil },
			maker: datafile.Maker{Create: func(ctx context.Context, dir string, _ int64, seed uint64, n func(int64)) (*datafile.File, error) {
				return datafile.Create(ctx, dir, 4*datafile.UnitSize, seed, n)
			}},
		},
	}
	return w
}

func (w *ringWorld) Round(ctx context.Context, j workload.Job) (measure.Sample, error) {
	if ctx.Err() != nil {
		return measure.Sample{}, ctx.Err()
	}
	if j.Measure == 0 {
		w.trials = append(w.trials, j)
	} else {
		w.jobs = append(w.jobs, j)
	}
	if of[workload.Nop](j) != nil && of[workload.Nop](j).Ring == w.refuses {
		return measure.Sample{}, errors.New("exec format error")
	}
	return measure.Sample{Ops: 100, Elapsed: time.Second, Backend: "liburing 9.9, tcc", Reason: w.reason}, nil
}

func (w *ringWorld) Remove() error { w.removed++; return nil }

func TestRingMeasuresTheDefaultGrid(t *testing.T) {
	w := newRingWorld()
	run, err := Ring(t.Context(), RingOptions{Seed: 7, Timing: fiveRounds}, w.Env)
	if err != nil || len(run.Skipped) != 0 || len(run.Notes) != 0 || len(run.Cells) != 6 {
		t.Fatalf("%d cells, skipped %v, notes %v, %v", len(run.Cells), run.Skipped, run.Notes, err)
	}
	if h := run.Host; h.Pairs != 5 || h.DurationMs != 200 || h.Seed != 7 || !slices.Equal(h.Peers, []string{"liburing 9.9, tcc"}) {
		t.Errorf("host %+v", h)
	}
	if len(w.jobs) != 60 || len(w.trials) != 2 || w.removed != 1 {
		t.Fatalf("%d rounds, %d trials, removed %d times", len(w.jobs), len(w.trials), w.removed)
	}
	for i, j := range w.jobs {
		ring := []string{workload.RingDefault, workload.RingDefer}[i/30]
		batch := []int{1, 16, 128}[i/10%3]
		name := inTurn(i, 5, liburing.Name, engine.NameRingside)
		if j.Engine != name || *of[workload.Nop](j) != (workload.Nop{Ring: ring, Batch: batch, First: 7}) || j.Warm <= 0 {
			t.Fatalf("round %d: %s %+v", i, j.Engine, *of[workload.Nop](j))
		}
	}
	found := false
	for _, r := range run.Document().Ratios {
		if r.Engine != engine.NameRingside || r.Against != liburing.Name {
			t.Errorf("ratio of %s against %s", r.Engine, r.Against)
		}
		found = found || r.Metric == measure.NsPerOp && r.Median < 1
	}
	if !found {
		t.Error("no ratio of the time of a no-op")
	}
}

func TestRingReads(t *testing.T) {
	w, dir := newRingWorld(), t.TempDir()
	opts := RingOptions{Workloads: []string{NopWork, ReadsWork}, Dir: dir, Seed: 7, Timing: Timing{Pairs: 2}}
	run, err := Ring(t.Context(), opts, w.Env)
	if err != nil || len(run.Skipped) != 0 || len(run.Cells) != 6+16 || run.Host.FileBytes != 4*datafile.UnitSize {
		t.Fatalf("%d cells, skipped %v, host %+v, %v", len(run.Cells), run.Skipped, run.Host, err)
	}
	reads := w.jobs[6*4:]
	if len(reads) != 16*4 {
		t.Fatalf("%d rounds of reads", len(reads))
	}
	for i, j := range reads {
		r, cell := of[workload.Reads](j), i/4
		ring, direct := []string{workload.RingDefault, workload.RingDefer}[cell/8], cell/4%2 == 1
		seed := 7 + uint64(i%4/2)
		if of[workload.Nop](j) != nil || r.Ring != ring || r.Direct != direct || r.Depth != []int{1, 8, 32, 128}[cell%4] ||
			r.Content != 7 || r.Seed != seed || r.Span != 4*datafile.UnitSize || filepath.Dir(r.Path) != dir {
			t.Fatalf("round %d: %+v", i, r)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestRingReadsWithoutDirect(t *testing.T) {
	w := newRingWorld()
	w.probeDirect = func(string) error { return workload.ErrNoDirect }
	opts := RingOptions{Workloads: []string{ReadsWork}, Dir: t.TempDir(), Timing: Timing{Pairs: 1}}
	run, err := Ring(t.Context(), opts, w.Env)
	if err != nil || len(run.Cells) != 8 || len(run.Skipped) != 1 {
		t.Fatalf("%d cells, skipped %v, %v", len(run.Cells), run.Skipped, err)
	}
	if got := run.Skipped[0].String(); !strings.HasPrefix(got, "ring read, O_DIRECT: ") || !strings.Contains(got, "--dir") {
		t.Errorf("skipped %s", got)
	}
}

func TestRingAxesAreReplaced(t *testing.T) {
	w := newRingWorld()
	opts := RingOptions{Rings: []string{workload.RingDefer}, Batches: []int{32, 256}, Timing: Timing{Pairs: 1, Duration: time.Millisecond}}
	run, err := Ring(t.Context(), opts, w.Env)
	if err != nil || len(run.Cells) != 2 || len(w.jobs) != 4 || of[workload.Nop](w.jobs[3]).Batch != 256 {
		t.Errorf("%d cells, %d rounds, %v", len(run.Cells), len(w.jobs), err)
	}
}

func TestRingValidate(t *testing.T) {
	for _, o := range []RingOptions{
		{Workloads: []string{"dance"}}, {Caches: []string{CacheCold}}, {Depths: []int{257}},
		{Rings: []string{"wedding"}}, {Batches: []int{0}}, {Batches: []int{257}}, {Timing: Timing{Pairs: -1}}, {Timing: Timing{Duration: -1}},
	} {
		if o.Validate() == nil {
			t.Errorf("%+v accepted", o)
		}
	}
	if err := (RingOptions{}).withDefaults().Validate(); err != nil {
		t.Error(err)
	}
}

func TestMissingPeerIsSkippedByName(t *testing.T) {
	w := newRingWorld()
	w.buildRing = func(context.Context) (Peer, error) { return nil, liburing.ErrNoLibrary }
	run, err := Ring(t.Context(), RingOptions{Timing: fiveRounds}, w.Env)
	if err != nil || len(run.Cells) != 6 || len(run.Cells[0].Series) != 1 || len(w.jobs) != 30 {
		t.Fatalf("%d cells, %d rounds, %v", len(run.Cells), len(w.jobs), err)
	}
	if len(run.Skipped) != 1 || run.Skipped[0].String() != "ring nop, engine liburing: "+liburing.ErrNoLibrary.Error() {
		t.Errorf("skipped %v", run.Skipped)
	}
}

func TestPeerThatCannotUseARingIsSkippedThere(t *testing.T) {
	w := newRingWorld()
	w.refuses = workload.RingDefer
	run, err := Ring(t.Context(), RingOptions{Timing: fiveRounds}, w.Env)
	if err != nil || len(run.Cells) != 6 || len(run.Cells[0].Series) != 2 || len(run.Cells[5].Series) != 1 {
		t.Fatalf("cells %v, %v", run.Cells, err)
	}
	if len(run.Skipped) != 1 || run.Skipped[0].String() != "ring nop, engine liburing, single issuer with deferred task work: exec format error" {
		t.Errorf("skipped %v", run.Skipped)
	}
	if w.removed != 1 {
		t.Errorf("removed %d times", w.removed)
	}
}

func TestDifferentPeerIsNotedOnce(t *testing.T) {
	w := newRingWorld()
	w.reason = "liburing opened its ring with other flags"
	run, err := Ring(t.Context(), RingOptions{Timing: Timing{Pairs: 1}}, w.Env)
	if err != nil || !slices.Equal(run.Notes, []string{w.reason}) {
		t.Errorf("notes %v, %v", run.Notes, err)
	}
}

func TestRingThatCannotBeUsedIsSkippedByName(t *testing.T) {
	w := newRingWorld()
	w.probeRing = func(ring string) error {
		if ring == workload.RingDefer {
			return fmt.Errorf("deferred task work needs Linux 6.1: %w", errors.ErrUnsupported)
		}
		return nil
	}
	run, err := Ring(t.Context(), RingOptions{Timing: fiveRounds}, w.Env)
	if err != nil || len(run.Cells) != 3 || len(w.trials) != 1 {
		t.Fatalf("%d cells, %d trials, %v", len(run.Cells), len(w.trials), err)
	}
	if len(run.Skipped) != 1 || !strings.HasPrefix(run.Skipped[0].String(), "ring nop, single issuer with deferred task work: deferred task work needs Linux 6.1") {
		t.Errorf("skipped %v", run.Skipped)
	}
	w.probeRing = func(string) error { return errors.New("forbidden") }
	w.buildRing = func(context.Context) (Peer, error) { t.Error("a peer was built but not used"); return w, nil }
	if run, err := Ring(t.Context(), RingOptions{Timing: fiveRounds}, w.Env); !errors.Is(err, ErrNothing) || len(run.Skipped) != 2 {
		t.Errorf("%v, skipped %v", err, run.Skipped)
	}
}

func TestInterruptedRingRunCleansUp(t *testing.T) {
	w := newRingWorld()
	ctx, cancel := context.WithCancel(t.Context())
	inner := w.Workers.Round
	w.Workers.Round = func(ctx context.Context, j workload.Job) (measure.Sample, error) {
		s, err := inner(ctx, j)
		if len(w.jobs) == 10+3 {
			cancel()
			return measure.Sample{}, ctx.Err()
		}
		return s, err
	}
	run, err := Ring(ctx, RingOptions{Timing: fiveRounds}, w.Env)
	if !errors.Is(err, context.Canceled) || len(run.Cells) != 1 || !strings.Contains(err.Error(), "1 of 6 cells") || w.removed != 1 {
		t.Errorf("%d cells, removed %d times, %v", len(run.Cells), w.removed, err)
	}
	w.buildRing = func(ctx context.Context) (Peer, error) { return nil, ctx.Err() }
	if run, err := Ring(ctx, RingOptions{Timing: fiveRounds}, w.Env); !errors.Is(err, context.Canceled) || len(run.Skipped) != 0 {
		t.Errorf("interrupted at once: %v, skipped %v", err, run.Skipped)
	}
}

func TestRingFailureNamesTheCell(t *testing.T) {
	w := newRingWorld()
	w.Workers.Round = func(context.Context, workload.Job) (measure.Sample, error) {
		return measure.Sample{}, errors.New("completion 5 of no-op 3, want 0 of 4")
	}
	_, err := Ring(t.Context(), RingOptions{Timing: fiveRounds}, w.Env)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"nop, default ring, batch 1", "engine ringside", "no-op 3"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %q", want, err)
		}
	}
	if w.removed != 1 {
		t.Errorf("removed %d times", w.removed)
	}
}

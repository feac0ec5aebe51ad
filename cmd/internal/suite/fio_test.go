// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/fio"
	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// withFio installs a fio that records its rounds and returns err.
func (w *world) withFio(err error) *[]fio.RandRead {
	var rounds []fio.RandRead
	w.findFio = func() (string, error) { return "/bin/fio", nil }
	w.fio = func(_ context.Context, program string, r fio.RandRead) (measure.Sample, error) {
		rounds = append(rounds, r)
		return measure.Sample{Ops: 1, Elapsed: 1, Backend: "fio-9.9"}, err
	}
	return &rounds
}

func TestFioRunsOnlyWithODirect(t *testing.T) {
	w, opts := newWorld(), smallFile(t)
	opts.NoFio, opts.Blocks, opts.Goroutines, opts.Caches = false, []int{4096}, []int{8}, []string{CacheHot, CacheDirect}
	rounds := w.withFio(nil)
	run, err := File(t.Context(), opts, w.Env)
	if err != nil || len(*rounds) != 1+5 || len(run.Cells[0].Series) != 2 || len(run.Cells[1].Series) != 4 {
		t.Fatalf("%d rounds of fio with the trial, cells %v, %v", len(*rounds), run.Cells, err)
	}
	if r := (*rounds)[1]; r.Engine != fio.Name || r.Block != 4096 || r.Depth != 8 || r.Span != opts.Size {
		t.Errorf("round %+v", r)
	}
	if !slices.Equal(run.Host.Peers, []string{"fio-9.9"}) {
		t.Errorf("peers %v", run.Host.Peers)
	}
	opts.Caches, *rounds = []string{CacheHot}, nil
	if _, err := File(t.Context(), opts, w.Env); err != nil || len(*rounds) != 0 {
		t.Errorf("%d rounds of fio without O_DIRECT, %v", len(*rounds), err)
	}
	wantEmpty(t, opts.Dir)
}

func TestFurtherEnginesOfFio(t *testing.T) {
	w, opts := newWorld(), smallFile(t)
	opts.NoFio, opts.FioAlso = false, []string{fio.NameFixed, fio.NameBatched}
	opts.Blocks, opts.Goroutines, opts.Caches, opts.Pairs = []int{4096}, []int{8}, []string{CacheDirect}, 1
	rounds := w.withFio(nil)
	run, err := File(t.Context(), opts, w.Env)
	if err != nil {
		t.Fatal(err)
	}
	var engines []string
	for _, s := range run.Cells[0].Series {
		engines = append(engines, s.Engine)
	}
	want := []string{engine.NameOS, engine.NameRingside, engine.NameBuffers, fio.Name, fio.NameFixed, fio.NameBatched}
	if !slices.Equal(engines, want) || (*rounds)[len(*rounds)-1].Engine != fio.NameBatched {
		t.Errorf("engines %v, rounds %v", engines, *rounds)
	}
}

func TestFioThatIsMissingOrBroken(t *testing.T) {
	broken := errors.New("fio: engine io_uring not loadable")
	for name, tc := range map[string]struct {
		leave  bool
		cause  error
		broken bool
	}{
		"missing":            {false, fio.ErrMissing, false},
		"broken":             {false, broken, true},
		"missing, left out":  {true, fio.ErrMissing, false},
		"broken and not run": {true, broken, true},
	} {
		w, opts := newWorld(), smallFile(t)
		opts.NoFio, opts.Blocks, opts.Goroutines, opts.Caches = tc.leave, []int{4096}, []int{8}, []string{CacheDirect}
		if tc.broken {
			w.withFio(broken)
		}
		run, err := File(t.Context(), opts, w.Env)
		switch {
		case err != nil || len(run.Cells[0].Series) != 3 || tc.leave != (len(run.Skipped) == 0):
			t.Errorf("%s: %v, skipped %v", name, err, run.Skipped)
		case !tc.leave && (run.Skipped[0].Engine != fio.Name || run.Skipped[0].Reason != tc.cause.Error()):
			t.Errorf("%s: skipped %v", name, run.Skipped)
		}
		wantEmpty(t, opts.Dir)
	}
}

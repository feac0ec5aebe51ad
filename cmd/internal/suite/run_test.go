// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/report"
)

// noisyPoints are cells of two engines whose true ratio is ratio. The noise of the cells
// differs (1 to 20 %), and sometimes a round is disturbed.
func noisyPoints(r *rand.Rand, n int, ratio float64) []point {
	var out []point
	for i := range n {
		scale := 0.01 * math.Pow(20, r.Float64())
		out = append(out, point{
			workload: nameRandRead, params: report.Params{"goroutines": i}, engines: []string{"os", "ringside"},
			round: func(_ context.Context, name string, _ int) (report.Sample, error) {
				x := scale * r.NormFloat64() / math.Sqrt2
				if r.IntN(20) == 0 {
					x *= 5
				}
				if name == "ringside" {
					x += math.Log(ratio)
				}
				return report.Sample{Iterations: 1, Metrics: map[string]float64{measure.OpsPerS: 1000 * math.Exp(x)}}, nil
			},
		})
	}
	return out
}

// noisyRun measures cells with as many repetitions as the runner can make.
func noisyRun(t *testing.T, r *rand.Rand, cells, repeat int, ratio float64) *report.Run {
	t.Helper()
	s := runner{suite: fileSuite, timing: Timing{Pairs: 5, Repeat: repeat}, progress: quiet{}, run: &report.Run{}}
	s.run.Host.Pairs = 5
	if repeat > 0 {
		s.run.Host.Looks = looks
	}
	if err := s.measure(t.Context(), noisyPoints(r, cells, ratio)); err != nil {
		t.Fatal(err)
	}
	return s.run
}

// forever is a percentage that is never used up.
const forever = 1 << 30

// called counts the cells with a verdict.
func called(run *report.Run) (better, worse int) {
	for _, d := range run.Duels() {
		switch d.Verdict {
		case report.Better:
			better++
		case report.Worse:
			worse++
		}
	}
	return better, worse
}

// TestRepeatedRunsOfOneBinary compares a binary with itself, with undecided cells measured
// again: fewer than one whole run in a hundred reports a difference, and fewer than one
// comparison of two such runs in a hundred.
func TestNullRunsThatRepeat(t *testing.T) {
	const runs = 1000
	r := rand.New(rand.NewPCG(11, 12))
	wrong, apart, repeated := 0, 0, 0
	var last *report.Document
	for range runs {
		run := noisyRun(t, r, 40, forever, 1)
		if better, worse := called(run); better+worse > 0 {
			wrong++
		}
		if len(run.Notes) > 0 {
			repeated++
		}
		d := run.Document()
		if last != nil {
			if c := report.Compare(last, &d); c.Count(report.Better)+c.Count(report.Worse) > 0 {
				apart++
			}
		}
		last = &d
	}
	t.Logf("of %d runs %d report a difference, and %d of the comparisons; %d repeated", runs, wrong, apart, repeated)
	if wrong > runs/100 || apart > runs/100 {
		t.Errorf("of %d runs without a difference %d report one, and %d of the comparisons", runs, wrong, apart)
	}
	if repeated < runs/2 {
		t.Errorf("only %d of %d runs measured undecided cells again", repeated, runs)
	}
}

// A cell whose true ratio is just too small to report has the most chances of a false
// verdict. Repeated tests must not add to them: if the level were not divided among the
// tests, twice as many runs would fail.
func TestRepeatingDividesTheLevel(t *testing.T) {
	const runs, cells = 20_000, 4
	r := rand.New(rand.NewPCG(17, 18))
	wrong := 0
	for range runs {
		points := noisyPoints(r, cells, 1.03)
		for i := range points {
			points[i].round = func(_ context.Context, name string, _ int) (report.Sample, error) {
				x := 0.02 * r.NormFloat64()
				if name == "ringside" {
					x += math.Log(1.03)
				}
				return report.Sample{Iterations: 1, Metrics: map[string]float64{measure.OpsPerS: 1000 * math.Exp(x)}}, nil
			}
		}
		s := runner{suite: fileSuite, timing: Timing{Pairs: 5, Repeat: forever}, progress: quiet{}, run: &report.Run{}}
		s.run.Host.Pairs, s.run.Host.Looks = 5, looks
		if err := s.measure(t.Context(), points); err != nil {
			t.Fatal(err)
		}
		if better, worse := called(s.run); better+worse > 0 {
			wrong++
		}
	}
	t.Logf("%d of %d runs", wrong, runs)
	if wrong > runs*5/2000 {
		t.Errorf("%d of %d runs report a difference that is not worth it", wrong, runs)
	}
}

// Repetitions decide cells that five pairs leave undecided.
func TestRepeatingDecides(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	once, often := 0, 0
	for range 20 {
		better, worse := called(noisyRun(t, r, 40, 0, 1.15))
		once += better - worse
		better, worse = called(noisyRun(t, r, 40, forever, 1.15))
		often += better - worse
	}
	if often < once+once/4 {
		t.Errorf("a difference of 15 %% was found in %d cells without repetitions, in %d with them", once, often)
	}
}

// inTurn returns the engine of the i-th round of points of so many pairs; see measure.Interleave.
func inTurn(i, pairs int, engines ...string) string {
	pair := i / len(engines) % pairs
	return engines[(i+pair)%len(engines)]
}

func TestRepeatStops(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	for name, tc := range map[string]struct {
		repeat int
		want   int // pairs
	}{"without time": {0, 5}, "after the last test": {forever, looks * 5}} {
		run := noisyRun(t, r, 20, tc.repeat, 1.1)
		most := 0
		for _, c := range run.Cells {
			most = max(most, len(c.Series[0].Samples), len(c.Series[1].Samples))
		}
		if most != tc.want {
			t.Errorf("%s: %d pairs at most, want %d", name, most, tc.want)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	points, rounds := noisyPoints(r, 20, 1.1), 0
	for i := range points {
		round := points[i].round
		points[i].round = func(ctx context.Context, name string, pair int) (report.Sample, error) {
			if rounds++; rounds > 20*2*5+3 {
				cancel(errors.New("told to end"))
			}
			time.Sleep(time.Microsecond) // the budget is a multiple of this
			return round(ctx, name, pair)
		}
	}
	s := runner{suite: fileSuite, timing: Timing{Pairs: 5, Repeat: forever}, progress: quiet{}, run: &report.Run{}}
	s.run.Host.Pairs, s.run.Host.Looks = 5, looks
	if err := s.measure(ctx, points); err == nil || !strings.Contains(fmt.Sprint(err), "told to end") || len(s.run.Cells) != 20 {
		t.Errorf("%v, %d cells", err, len(s.run.Cells))
	}
}

// TestDisturbedRounds checks that a round is measured again if the host took the processors meanwhile,
// and that a host that always does so does not keep the suite from its end.
func TestDisturbedRounds(t *testing.T) {
	for _, c := range []struct {
		name           string
		share          func(round int) float64
		kept, repeated int
		stolen         float64
	}{
		{"quiet host", func(int) float64 { return 0.01 }, 10, 0, 0.01},
		{"one burst", func(round int) float64 { return []float64{0, 0, 0, 0.4, 0.06, 0}[min(round, 5)] }, 10, 2, 0},
		{"busy host", func(int) float64 { return 0.3 }, 10, 5, 0.3},
	} {
		t.Run(c.name, func(t *testing.T) {
			measured := 0
			s := runner{suite: fileSuite, timing: Timing{Pairs: 5}, progress: quiet{}, run: &report.Run{}}
			s.stolen = func() func() float64 {
				round := measured
				return func() float64 { return c.share(round) }
			}
			p := point{workload: "randread", engines: []string{"os", "ringside"}, round: func(context.Context, string, int) (report.Sample, error) {
				measured++
				return report.Sample{Iterations: 1, Metrics: map[string]float64{measure.OpsPerS: float64(measured)}}, nil
			}}
			if err := s.measure(t.Context(), []point{p}); err != nil {
				t.Fatal(err)
			}
			if measured != c.kept+c.repeated {
				t.Errorf("%d rounds measured, want %d and %d again", measured, c.kept, c.repeated)
			}
			for i, series := range s.run.Cells[0].Series {
				if n := len(series.Samples); n != 5 {
					t.Errorf("engine %d has %d samples", i, n)
				}
			}
			if got := s.run.Host.Stolen; math.Abs(got-c.stolen) > 0.001 {
				t.Errorf("Stolen is %v, want %v", got, c.stolen)
			}
			if noted := len(s.run.Notes) > 0; noted != (c.repeated > 0) {
				t.Errorf("notes %q", s.run.Notes)
			}
			if c.name != "one burst" {
				return
			}
			// The disturbed samples, of the fourth and the fifth round, are gone.
			for _, series := range s.run.Cells[0].Series {
				for _, sample := range series.Samples {
					if n := sample.Metrics[measure.OpsPerS]; n == 4 || n == 5 {
						t.Errorf("sample of disturbed round %v kept", n)
					}
				}
			}
		})
	}
}

// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/report"
)

// inTurn returns the engine of the i-th round of points of so many pairs; see measure.Interleave.
func inTurn(i, pairs int, engines ...string) string {
	pair := i / len(engines) % pairs
	return engines[(i+pair)%len(engines)]
}

// slowPlayer makes half as many operations as the other engine from the second start on.
type slowPlayer struct {
	name          string
	start, turned int
	closed        *atomic.Int32
}

func (p *slowPlayer) Turn(d time.Duration) (measure.Sample, error) {
	p.turned++
	s := measure.Sample{Ops: 1000, Elapsed: d}
	if p.name == "os" && p.start > 0 {
		s.Ops = 500
	}
	return s, nil
}

func (p *slowPlayer) Close() error {
	p.closed.Add(1)
	return nil
}

// TestDuels checks that engines take turns in several starts, that the samples know their start, and
// that an engine that cannot take turns has one round for each start.
func TestDuels(t *testing.T) {
	var opened, closed atomic.Int32
	s := runner{suite: fileSuite, timing: Timing{Pairs: 3, Duration: 7 * time.Microsecond, Turn: time.Microsecond}, run: &report.Run{}}
	s.timing.setDefaults()
	p := point{
		workload: nameRandRead, engines: []string{"os", "ringside", "fio"},
		round: func(context.Context, string, int) (report.Sample, error) {
			return report.Sample{Iterations: 1, Metrics: map[string]float64{measure.OpsPerS: 7}}, nil
		},
		open: func(_ context.Context, name string, pair int) (measure.Player, error) {
			if name == "fio" {
				return nil, errors.ErrUnsupported
			}
			opened.Add(1)
			return &slowPlayer{name: name, start: pair / 3, closed: &closed}, nil
		},
	}
	if err := s.measure(t.Context(), []point{p}); err != nil || opened.Load() != 6 || closed.Load() != 6 {
		t.Fatalf("%v: %d opened, %d closed", err, opened.Load(), closed.Load())
	}
	series := s.run.Cells[0].Series
	if a, b := len(series[0].Samples), len(series[1].Samples); a != 3*7 || b != 3*7 || len(series[2].Samples) != 3 {
		t.Errorf("%d and %d turns, %d rounds", a, b, len(series[2].Samples))
	}
	for _, one := range series[0].Samples {
		if slow := one.Metrics[measure.OpsPerS] < 0.6*series[1].Samples[0].Metrics[measure.OpsPerS]; slow != (one.Start > 0) {
			t.Fatalf("start %d: %v", one.Start, one.Metrics)
		}
	}
}

func TestNullPoints(t *testing.T) {
	var asked []string
	p := point{workload: nameRandRead, params: report.Params{"block": 1}, engines: []string{"os", "ringside"}}
	p.round = func(_ context.Context, name string, _ int) (report.Sample, error) {
		asked = append(asked, name)
		return report.Sample{Iterations: 1, Metrics: map[string]float64{measure.OpsPerS: 7}}, nil
	}
	s := runner{suite: fileSuite, timing: Timing{Pairs: 1, Null: true, counted: true}, run: &report.Run{}}
	if err := s.measure(t.Context(), []point{p}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(asked, " "); got != "os os ringside ringside" || len(s.run.Cells) != 2 || s.run.Cells[1].Series[1].Engine != "ringside (again)" {
		t.Errorf("asked %q: %+v", got, s.run.Cells)
	}
}

// tiredPlayer needs a time for each turn, however short the turn is.
type tiredPlayer struct{ takes time.Duration }

func (p tiredPlayer) Turn(d time.Duration) (measure.Sample, error) {
	time.Sleep(p.takes)
	return measure.Sample{Ops: 1, Elapsed: d}, nil
}

func (tiredPlayer) Close() error { return nil }

// TestRunEndsInTime checks that a run uses its time, and that it ends in time on a machine on which
// everything takes much longer than usual: then cells at the end have fewer samples, or none and a reason.
func TestRunEndsInTime(t *testing.T) {
	for slower, measured := range map[time.Duration]int{1: 20, 2: 20, 100: 1} {
		synctest.Test(t, func(t *testing.T) {
			s := newRunner(fileSuite, Timing{Time: time.Minute}, nil, "")
			s.stolen = nil
			s.timing.setDefaults()
			var points []point
			for i := range 20 {
				p := point{workload: nameRandRead, params: report.Params{"block": i}, engines: []string{"os", "ringside"}}
				p.round = func(context.Context, string, int) (report.Sample, error) {
					time.Sleep(slower * 100 * time.Millisecond)
					return report.Sample{Iterations: 1, Metrics: map[string]float64{measure.OpsPerS: 7}}, nil
				}
				if i%2 == 0 {
					p.open = func(context.Context, string, int) (measure.Player, error) {
						time.Sleep(slower * 50 * time.Millisecond)
						return tiredPlayer{slower * 20 * time.Millisecond}, nil
					}
				}
				points = append(points, p)
			}
			began := time.Now()
			if err := s.measure(t.Context(), points); err != nil {
				t.Fatal(err)
			}
			took, longest := time.Since(began), slower*200*time.Millisecond
			if took > time.Minute+longest || took < time.Minute-2*longest {
				t.Errorf("%d times slower: the run took %v", slower, took)
			}
			if len(s.run.Cells) < measured || len(s.run.Cells)+len(s.run.Skipped) != len(points) {
				t.Errorf("%d times slower: %d cells, skipped %v", slower, len(s.run.Cells), s.run.Skipped)
			}
		})
	}
}

// steadyPlayer is an engine that plays in every turn for its time, at a rate that varies by noise.
type steadyPlayer struct{ rate, noise float64 }

func (p steadyPlayer) Turn(d time.Duration) (measure.Sample, error) {
	time.Sleep(d)
	ops := p.rate * math.Exp(p.noise*rand.NormFloat64()) * d.Seconds()
	return measure.Sample{Ops: int64(ops), Elapsed: d}, nil
}

func (steadyPlayer) Close() error { return nil }

// steadyPoints returns a point for each ratio of the rates of its engines.
func steadyPoints(ratios ...float64) (points []point) {
	for i, faster := range ratios {
		points = append(points, point{
			workload: nameRandRead, params: report.Params{"block": i}, engines: []string{"os", "ringside"},
			open: func(_ context.Context, engine string, _ int) (measure.Player, error) {
				if engine == "os" {
					return steadyPlayer{1e6, 0.1}, nil
				}
				return steadyPlayer{1e6 * faster * math.Exp(0.05*rand.NormFloat64()), 0.1}, nil
			},
		})
	}
	return points
}

// TestInterruptInTheSharedTime checks that an interrupt while points are measured again keeps all of them.
func TestInterruptInTheSharedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRunner(fileSuite, Timing{Time: time.Minute}, nil, "")
		s.stolen = nil
		s.timing.setDefaults()
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("an interrupt")
		defer time.AfterFunc(45*time.Second, func() { cancel(cause) }).Stop()
		err := s.measure(ctx, steadyPoints(3, 1.04))
		if !errors.Is(err, cause) || !strings.Contains(err.Error(), "stopped after 2 of 2 cells") || len(s.run.Cells) != 2 {
			t.Errorf("%v, %d cells", err, len(s.run.Cells))
		}
	})
}

// brokenPlayer fails after some turns, or finds when it ends that its work is wrong.
type brokenPlayer struct {
	steadyPlayer
	turns *int // left before it fails; nil if it fails at the end
}

var errWrong = errors.New("a record is lost")

func (p brokenPlayer) Turn(d time.Duration) (measure.Sample, error) {
	if p.turns != nil {
		if *p.turns--; *p.turns < 0 {
			return measure.Sample{}, errWrong
		}
	}
	return p.steadyPlayer.Turn(d)
}

func (p brokenPlayer) Close() error {
	if p.turns == nil {
		return errWrong
	}
	return nil
}

// TestFailedCellIsSkipped checks that a cell that fails is left out with its reason, also if it had
// samples and fails only when it is measured again, and that the others are measured.
func TestFailedCellIsSkipped(t *testing.T) {
	const anew = 450 // turns: 18 s, after the cell's first part of the time
	for _, turns := range []int{-1, 0, 10, anew} {
		synctest.Test(t, func(t *testing.T) {
			s := newRunner(fileSuite, Timing{Time: time.Minute}, nil, "")
			s.stolen = nil
			s.timing.setDefaults()
			points := steadyPoints(1.04, 1, 3, 3)
			broken := brokenPlayer{steadyPlayer: steadyPlayer{0.9e6, 0.1}, turns: &turns}
			if turns < 0 {
				broken.turns = nil
			}
			open, all := points[1].open, turns
			points[1].open = func(ctx context.Context, engine string, start int) (measure.Player, error) {
				if engine == "os" {
					return open(ctx, engine, start)
				}
				broken.rate = 1.9e6 - broken.rate // 0.9 and 1 in turn, so that the cell is never sure
				return broken, nil
			}
			err := s.measure(t.Context(), points)
			if !errors.Is(err, ErrFailed) || !errors.Is(err, errWrong) || !strings.HasPrefix(err.Error(), "1 of 4 cells failed: randread, ") {
				t.Errorf("%d turns: %v", all, err)
			}
			if len(s.run.Cells) != 3 || s.run.Cells[0].Params["block"] != 0 || s.run.Cells[1].Params["block"] != 2 {
				t.Errorf("%d turns: %d cells", all, len(s.run.Cells))
			}
			if len(s.run.Skipped) != 1 || s.run.Skipped[0].Params["block"] != 1 || s.run.Skipped[0].Reason != "failed: engine ringside: "+errWrong.Error() {
				t.Errorf("%d turns: skipped %v", all, s.run.Skipped)
			}
		})
	}
}

// TestStartsAreEnoughForAVerdict checks that engines that take long to open are started often enough.
func TestStartsAreEnoughForAVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRunner(fileSuite, Timing{Time: time.Minute}, nil, "")
		s.stolen = nil
		s.timing.setDefaults()
		points := steadyPoints(1.1, 0.9, 1.2)
		for i := range points {
			open := points[i].open
			points[i].open = func(ctx context.Context, engine string, start int) (measure.Player, error) {
				time.Sleep(4 * time.Second)
				return open(ctx, engine, start)
			}
		}
		if err := s.measure(t.Context(), points); err != nil {
			t.Fatal(err)
		}
		for i, c := range s.run.Cells {
			if samples := c.Series[0].Samples; samples[len(samples)-1].Start < leastStarts-1 {
				t.Errorf("cell %d: the last start is %d", i, samples[len(samples)-1].Start)
			}
		}
	})
}

// TestSurePointsLeaveTheirTime checks that a comparison which is decided beyond doubt ends early, and that
// the others share what it leaves.
func TestSurePointsLeaveTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRunner(fileSuite, Timing{Time: time.Minute}, nil, "")
		s.stolen = nil
		s.timing.setDefaults()
		points := steadyPoints(3, 1.04, 3, 1.04)
		began := time.Now()
		if err := s.measure(t.Context(), points); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 58*time.Second || took > 61*time.Second {
			t.Errorf("the run took %v", took)
		}
		turns := func(i int) int { return len(s.run.Cells[i].Series[0].Samples) }
		for i := 0; i < len(points); i += 2 {
			if !s.run.Cells[i].Sure() || points[i].starts > leastStarts+1 {
				t.Errorf("point %d: %d starts", i, points[i].starts)
			}
			if turns(i+1) < 2*turns(i) {
				t.Errorf("%d turns of a sure point, %d of one that is not", turns(i), turns(i+1))
			}
		}
	})
}

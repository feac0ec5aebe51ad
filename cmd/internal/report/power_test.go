// SPDX-License-Identifier: MIT

package report

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// recordedNoise is the standard deviation of the logarithm of a pair's ratio, by suite: the median
// of all cells of two default runs, one of them beside other programs, and of the published results; for
// the speed tests of SQLite that of their geometric mean. They are of pairs of 200 ms.
func recordedNoise(t *testing.T) map[string]struct{ Rate, CPU float64 } {
	t.Helper()
	b, err := os.ReadFile("testdata/noise.json")
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]struct{ Rate, CPU float64 }
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// question is a kind of cell of a default run: how many there are, and how it is measured.
type question struct {
	suite, workload string
	engines         []string
	cells           int
	starts, pairs   int
}

// defaultRun are the questions of a default run. Every start has at least twelve pairs of turns.
var defaultRun = []question{
	{"file", "randread", []string{"os", "ringside"}, 6, 5, 12},
	{"file", "batch", []string{"os", "ringside"}, 1, 5, 12},
	{"file", "append", []string{"os", "ringside"}, 2, 5, 12},
	{"net", "echo", []string{"std", "ringside-conn", "ringside-event"}, 5, 5, 12},
	{"net", "tls", []string{"std", "ringside-conn", "ringside-event"}, 3, 5, 12},
	{"net", "http", []string{"std", "ringside-conn"}, 3, 5, 12},
	{"watch", "events", []string{"epoll", "io_uring"}, 2, 5, 12},
	{"sqlite", "tenants", []string{"default", "ringside"}, 6, 5, 12},
	{"sqlite", "cold", []string{"default", "ringside"}, 2, 14, 1},
}

// Noise of a start, which all of its pairs share (unet/event beside net had 1.13, 1.26, 1.26 and 1.26
// in four), and the share of pairs in which an engine lost its processor to another program.
const (
	startNoise = 0.025
	lostPairs  = 0.08
)

// noisyRun is a default run in which ratios differ from 1 by the given logarithm. busy multiplies the
// recorded noise.
func noisyRun(r *rand.Rand, noise map[string]struct{ Rate, CPU float64 }, ratio, busy float64) *Run {
	run := &Run{}
	for _, q := range defaultRun {
		sd := noise[q.suite]
		for n := range q.cells {
			c := Cell{Suite: q.suite, Workload: q.workload, Params: Params{"connections": n + 2}}
			if q.workload == "tenants" {
				c.Params["databases"] = 16
			}
			for i, name := range q.engines {
				c.Series = append(c.Series, q.series(r, name, busy*sd.Rate, busy*sd.CPU, float64(min(i, 1))*ratio))
			}
			run.Cells = append(run.Cells, c)
		}
	}
	return run
}

func (q question) series(r *rand.Rand, name string, rate, cpu, ratio float64) Series {
	s := Series{Engine: name}
	for start := range q.starts {
		first, second := startNoise*r.NormFloat64(), startNoise*r.NormFloat64()
		for range q.pairs {
			lost := 1.0
			if r.Float64() < lostPairs/2 {
				lost = 5
			}
			s.Samples = append(s.Samples, Sample{Start: start, Metrics: map[string]float64{
				measure.OpsPerS:    1000 * math.Exp(ratio+first+lost*rate*r.NormFloat64()/math.Sqrt2),
				measure.CPUUsPerOp: math.Exp(second + lost*cpu*r.NormFloat64()/math.Sqrt2),
			}})
		}
	}
	return s
}

// TestNullRuns: without any difference at most one run in twenty makes a claim, on an idle machine and
// beside a program that uses half a processor (the recorded noise of runs beside compilers is 1.3 times
// that of the others).
func TestNullRuns(t *testing.T) {
	const runs = 100
	noise := recordedNoise(t)
	for _, busy := range []float64{1, 1.3} {
		r := rand.New(rand.NewPCG(11, 12))
		wrong := 0
		for range runs {
			for _, c := range noisyRun(r, noise, 0, busy).Claims() {
				if c.Kind == Gain || c.Kind == Loss {
					wrong++
					break
				}
			}
		}
		t.Logf("noise times %v: %d of %d runs make a claim", busy, wrong, runs)
		if wrong > runs/20 {
			t.Errorf("noise times %v: %d of %d runs make a claim although nothing differs", busy, wrong, runs)
		}
	}
}

// TestPower: a true ratio of 1.25 is claimed in 90 of 100 runs, and 1.5 in 99.
func TestPower(t *testing.T) {
	const runs = 60
	noise := recordedNoise(t)
	for _, tc := range []struct{ ratio, busy, share float64 }{{1.25, 1, 0.9}, {1.25, 1.3, 0.9}, {1.5, 1, 0.99}, {1.5, 1.3, 0.99}} {
		r := rand.New(rand.NewPCG(13, 14))
		told, all := map[string]int{}, map[string]int{}
		for range runs {
			for _, c := range noisyRun(r, noise, math.Log(tc.ratio), tc.busy).Claims() {
				key := c.Suite + "/" + c.Workload
				if all[key]++; c.Kind == Gain {
					told[key]++
				}
			}
		}
		for key, n := range all {
			share := float64(told[key]) / float64(n)
			t.Logf("%v at noise times %v: %s claimed in %.3f", tc.ratio, tc.busy, key, share)
			if share < tc.share {
				t.Errorf("%v at noise times %v: %s claimed in %.2f of runs, want %v", tc.ratio, tc.busy, key, share, tc.share)
			}
		}
	}
}

// TestIntervalsHold: in 95 of 100 comparisons the interval holds the true ratio.
func TestIntervalsHold(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	noise := recordedNoise(t)
	held, all := 0, 0
	for range 60 {
		for _, c := range noisyRun(r, noise, math.Log(1.2), 1).Claims() {
			all++
			if c.Rate.Low <= 1.2 && 1.2 <= c.Rate.High {
				held++
			}
		}
	}
	if share := float64(held) / float64(all); share < 0.94 {
		t.Errorf("%.3f of %d intervals hold the true ratio", share, all)
	}
}

// TestSure: a comparison without a difference never ends early, at any number of starts, also if its starts
// deviate by more than those of any workload; one of twofold is over after four starts.
func TestSure(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 18))
	cell := func(starts int, ratio, deviation float64) Cell {
		first, second := Series{Engine: "os"}, Series{Engine: "ringside"}
		for n := range starts {
			x := math.Exp(ratio + deviation*r.NormFloat64())
			first.Samples = append(first.Samples, Sample{Start: n, Metrics: map[string]float64{measure.OpsPerS: 1}})
			second.Samples = append(second.Samples, Sample{Start: n, Metrics: map[string]float64{measure.OpsPerS: x}})
		}
		return Cell{Suite: "file", Workload: "randread", Series: []Series{first, second}}
	}
	for _, deviation := range []float64{0.05, 0.1, 0.2} {
		for range 5000 {
			if c := cell(4+r.IntN(9), 0, deviation); c.Sure() {
				t.Fatalf("starts that deviate by %v without a difference are sure after %d", deviation, len(c.Series[0].Samples))
			}
		}
	}
	for range 100 {
		if c := cell(4, math.Log(2), 0.05); !c.Sure() {
			t.Fatal("four starts do not decide 2.0x")
		}
	}
	if c := cell(200, 0, 0.1); !c.Sure() {
		t.Fatal("200 rounds do not decide that two engines are alike")
	}
}

// TestNullOfCommits: a difference that a comparison of commits with themselves may show is no claim; of other work it is.
func TestNullOfCommits(t *testing.T) {
	for _, suite := range []string{"file", "sqlite"} {
		c := Cell{Suite: suite, Workload: "tenants", Params: Params{"databases": 16}}
		for i, name := range []string{"default", "ringside"} {
			s := Series{Engine: name}
			for start := range 8 {
				s.Samples = append(s.Samples, Sample{Start: start, Metrics: map[string]float64{
					measure.OpsPerS: 1000 * (1 + 0.04*float64(i)) * (1 + 0.001*float64(start%3*i)),
				}})
			}
			c.Series = append(c.Series, s)
		}
		i, ok := c.interval(c.Series[1], c.Series[0], measure.OpsPerS)
		if !ok || (i.chance < 0.01) != (suite == "file") {
			t.Errorf("%s: %+v", suite, i)
		}
	}
}

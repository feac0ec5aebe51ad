// SPDX-License-Identifier: MIT

package report

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// rates is a run in which one engine has these rates.
func rates(kernel string, values ...float64) *Run {
	s := Series{Engine: "ringside"}
	for _, v := range values {
		s.Samples = append(s.Samples, Sample{Start: len(s.Samples), Iterations: 1, Metrics: map[string]float64{measure.OpsPerS: v, measure.CPUUsPerOp: 1e6 / v}})
	}
	return &Run{
		Host:  Host{Kernel: kernel, Commit: "abc", Pairs: len(values)},
		Cells: []Cell{{Suite: "ring", Workload: "nop", Params: Params{"batch": 8, "device": kernel}, Series: []Series{s}}},
	}
}

// kept writes the run's result file and reads it again.
func kept(t *testing.T, r *Run) *Document {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	d, err := ReadDocument(&b)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestCompare(t *testing.T) {
	for name, test := range map[string]struct {
		before, after []float64
		verdict       string // of the rate; the CPU time changes with it
		p             bool
	}{
		"twice the rate":        {[]float64{100, 101, 99, 102, 98}, []float64{200, 202, 199, 204, 196}, Better, true},
		"half the rate":         {[]float64{200, 202, 199, 204, 196}, []float64{100, 101, 99, 102, 98}, Worse, true},
		"noise":                 {[]float64{100, 120, 90, 130, 80}, []float64{105, 125, 88, 131, 79}, Same, true},
		"apart, but negligible": {[]float64{1000, 1001, 999, 1002, 998}, []float64{1010, 1011, 1009, 1012, 1008}, Same, true},
		"all equal":             {[]float64{5, 5, 5, 5, 5}, []float64{5, 5, 5, 5, 5}, Same, true},
		"equal before":          {[]float64{5, 5, 5, 5, 5}, []float64{9, 9, 9, 9, 9}, Better, true},
		"too few":               {[]float64{100, 101, 99}, []float64{200, 202, 199}, Unclear, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := Compare(kept(t, rates("6.1", test.before...)), kept(t, rates("6.12", test.after...)))
			if len(c.Changes) != 2 || len(c.OnlyOld)+len(c.OnlyNew) != 0 {
				t.Fatalf("%d changes, only in one %q %q", len(c.Changes), c.OnlyOld, c.OnlyNew)
			}
			for _, ch := range c.Changes {
				if ch.Verdict != test.verdict || (ch.P != nil) != test.p {
					t.Errorf("%s: %s (p %v), want %s", ch.Metric, ch.Verdict, ch.P, test.verdict)
				}
			}
		})
	}
}

func TestCompareText(t *testing.T) {
	before, after := rates("6.1", 100, 101, 99, 102, 98), rates("6.12", 200, 202, 199, 204, 196)
	extra := after.Cells[0]
	extra.Params = Params{"batch": 64}
	after.Cells = append(after.Cells, extra)
	var b strings.Builder
	if err := Compare(kept(t, before), kept(t, after)).WriteText(&b, false, Style{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"kernel:        6.1 -> 6.12", "+100.0 %", "-50.0 %", "better", "2 better, 0 worse, 0 the same.",
		"ringside: rate 2.00x in the geometric mean of 1 cell.", "only in the new file: ring Nop/batch=64/engine=ringside.",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
}

// TestCompareOthers compares files that share some of their measurements, or none.
func TestCompareOthers(t *testing.T) {
	before, after := rates("6.1", 100, 101, 99), rates("6.1", 100, 101, 99)
	for i := range fewNames + 1 {
		extra := after.Cells[0]
		extra.Params = Params{"batch": 1000 + i}
		after.Cells = append(after.Cells, extra)
	}
	c := Compare(kept(t, before), kept(t, after))
	if err := c.Disjoint("a", "b"); err != nil {
		t.Error(err)
	}
	for want, all := range map[string]bool{
		"only in the new file: 5 measurements of ring Nop; --all lists them.\n":                               false,
		"only in the new file:\n  ring Nop/batch=1000/engine=ringside\n  ring Nop/batch=1001/engine=ringside": true,
	} {
		var b strings.Builder
		if err := c.WriteText(&b, all, Style{}); err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("%v, no %q in\n%s", err, want, &b)
		}
	}
	after.Cells = after.Cells[1:]
	want := "a and b have no measurement in common: the first has ring Nop, the second ring Nop; compare two runs of the same command"
	if err := Compare(kept(t, before), kept(t, after)).Disjoint("a", "b"); err == nil || err.Error() != want {
		t.Error(err)
	}
}

// Two files of one binary, the second measured while the machine was 5 % slower: at most
// one comparison in twenty has a verdict.
func TestCompareNullRuns(t *testing.T) {
	const comparisons, cells = 60, 200
	r := rand.New(rand.NewPCG(5, 6))
	wrong := 0
	for range comparisons {
		var docs [2]*Document
		for i := range docs {
			run := &Run{}
			for cell := range cells {
				scale, level := 0.01+0.1*r.Float64(), 1000*math.Exp(0.02*r.NormFloat64()-0.05*float64(i))
				s := Series{Engine: "ringside"}
				for range 5 {
					x := scale * r.NormFloat64()
					if r.IntN(10) == 0 {
						x *= 5
					}
					s.Samples = append(s.Samples, Sample{Start: len(s.Samples), Iterations: 1, Metrics: map[string]float64{measure.OpsPerS: level * math.Exp(x)}})
				}
				run.Cells = append(run.Cells, Cell{Suite: "ring", Workload: "nop", Params: Params{"batch": cell}, Series: []Series{s}})
			}
			d := run.Document()
			docs[i] = &d
		}
		if c := Compare(docs[0], docs[1]); c.Count(Better)+c.Count(Worse) > 0 {
			wrong++
		}
	}
	if wrong > comparisons/20 {
		t.Errorf("%d of %d comparisons of a binary with itself have a verdict", wrong, comparisons)
	}
}

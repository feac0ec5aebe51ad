// SPDX-License-Identifier: MIT

package report

import "github.com/ringside-io/ringside/cmd/internal/measure"

// Findings are what a run says, for programs: the verdicts that people get in words, with the ratios
// they follow from.
type Findings struct {
	Host Host `json:"host"`
	// Notes say what spoils the numbers.
	Notes   []string  `json:"notes,omitempty"`
	Choices []Finding `json:"choices"`
	// Sentences are the words below the tables of each suite.
	Sentences map[string][]string `json:"sentences"`
	Skipped   []Skip              `json:"skipped,omitempty"`
}

// Finding is the verdict about one thing in the place of another, at one point.
type Finding struct {
	Suite    string `json:"suite"`
	Use      string `json:"use"`
	Instead  string `json:"instead"`
	Workload string `json:"workload"`
	Point    string `json:"point"`
	Params   Params `json:"params,omitempty"`
	// Verdict is about the rate: better, worse, same, or unclear with too few pairs. SavesCPU tells
	// that the rate is the same for clearly less processor time.
	Verdict  string `json:"verdict"`
	SavesCPU bool   `json:"saves_cpu"`
	// Rate and CPU are ratios of the pairs; CPU is left out where it is not known.
	Rate measure.Summary  `json:"rate"`
	CPU  *measure.Summary `json:"cpu,omitempty"`
}

// Findings returns what the run says.
func (r *Run) Findings() Findings {
	f := Findings{Host: r.Host, Notes: r.Notes, Choices: []Finding{}, Sentences: map[string][]string{}, Skipped: r.Skipped}
	for _, d := range r.Duels() {
		one := Finding{
			Suite: d.Cell.Suite, Use: d.Use, Instead: d.Instead, Workload: d.Cell.Workload, Point: d.Point, Params: d.Cell.Params,
			Verdict: d.Verdict, SavesCPU: d.Saves, Rate: d.Rate,
		}
		if d.CPU.Median > 0 {
			one.CPU = &d.CPU
		}
		f.Choices = append(f.Choices, one)
	}
	for _, name := range r.Suites() {
		f.Sentences[name] = append([]string{}, r.Suite(name).Words(LayoutOf(name))...)
	}
	return f
}

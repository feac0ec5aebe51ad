// SPDX-License-Identifier: MIT

package report

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// choice is a pair of engines that a user chooses between. use and instead describe them in the
// user's words.
type choice struct{ suite, engine, against, use, instead string }

// choices are the compared engines. First come the choices of a user of ringside. Then come
// comparisons that show where a difference comes from.
var choices = []choice{
	{"file", "ringside", "os", "ufile", "os.File"},
	{"file", "ringside", "fio", "ufile", "fio"},
	{"net", "ringside-conn", "std", "unet (net.Conn)", "package net"},
	{"net", "ringside-conn", "ringside-plain", "unet on io_uring", "unet with plain calls"},
	{"net", "ringside-event", "std", "unet/event (callbacks)", "package net"},
	{"net", "ringside-event", "ringside-event-epoll", "unet/event on io_uring", "unet/event on epoll"},
	{"net", "ringside-event", "liburing", "unet/event (callbacks)", "a server in C on liburing"},
	{"net", "ringside-batch", "std", "unet's batches of datagrams", "package net"},
	{"net", "ringside-batch", "xnet-batch", "unet's batches of datagrams", "golang.org/x/net's"},
	{"net", "ringside-event", "xnet-batch", "unet/event (callbacks)", "golang.org/x/net's batches of datagrams"},
	{"ring", "ringside", "liburing", "uring", "liburing"},
	{"watch", "io_uring", "epoll", "watch on io_uring", "watch on epoll"},
	{"sqlite", "ringside", "default", "sqlitevfs (vfs=ringside)", "the default VFS"},
	{"sqlite", "ringside-log", "default", "sqlitevfs with the shared log (vfs=ringside-log)", "the default VFS"},
	{"sqlite", "ringside-group", "default", "sqlitevfs with group sync (vfs=ringside-group)", "the default VFS"},
	{"sqlite", "ringside", "ringside-plain", "sqlitevfs (vfs=ringside)", "the default VFS with syncs of directories"},
	{"sqlite", "ringside", "modernc", "sqlitevfs (vfs=ringside)", "modernc.org/sqlite"},
	{"sqlite", "ringside", "mattn", "sqlitevfs (vfs=ringside)", "mattn/go-sqlite3"},
}

// Advice is the finding about one choice. Points with a difference have their ratio in brackets.
type Advice struct {
	Use     string
	Instead string
	// Yes are the points with a higher rate, or with the same rate for clearly less CPU time. No
	// are those with a lower rate, Same those without a difference. Open are the undecided points,
	// whose rounds differ too much.
	Yes, Same, No, Open []string
	// TooFew reports whether there are too few pairs for any verdict.
	TooFew bool
}

// minSaving is the share of CPU time that must be saved for a choice to pay at the same rate.
const minSaving = 0.1

// Duel compares two engines of a choice in one cell.
type Duel struct {
	Cell Cell
	// Use and Instead name the choice, Point the cell.
	Use, Instead, Point string
	// Rate and CPU are the ratios of the pairs. CPU is zero if it is unknown.
	Rate, CPU measure.Summary
	Verdict   string // Better, Worse, Same or Unclear; about the rate
	// Saves reports whether the rate is the same for clearly less CPU time.
	Saves bool

	tooFew bool // too few pairs for a verdict
}

// Duels returns all comparisons of the run that matter to a user, by choice.
func (r *Run) Duels() []Duel {
	r.assessed()
	var out []Duel
	for _, ch := range choices {
		for _, c := range r.Cells {
			for _, pair := range c.pairsOf(ch) {
				d := Duel{Cell: c, Use: ch.use, Instead: ch.instead, Point: c.point()}
				if _, journal, ok := strings.Cut(strings.TrimPrefix(pair[0].Engine, ch.engine), "-"); ok {
					d.Point += " (" + journal + ")"
				}
				if d.judge(pair[0], pair[1]) {
					out = append(out, d)
				}
			}
		}
	}
	return out
}

// judge compares the series. It returns false if there is nothing to compare.
func (d *Duel) judge(s, against Series) bool {
	var ok bool
	if d.Rate, ok = s.Ratio(against, measure.OpsPerS); !ok {
		return false
	}
	if cpu, known := s.Ratio(against, measure.CPUUsPerOp); known {
		d.CPU = cpu
	}
	switch d.Cell.judge(s, against, measure.OpsPerS) {
	case faster:
		d.Verdict = Better
	case slower:
		d.Verdict = Worse
	case alike:
		d.Verdict = Same
		d.Saves = d.CPU.Median < 1-minSaving && d.Cell.judge(s, against, measure.CPUUsPerOp) == slower
	default:
		d.Verdict = Unclear
	}
	d.tooFew = len(s.Samples) < minPairs
	return true
}

// pairsOf returns the series of both engines. With SQLite the names of the series may end with the
// journal mode.
func (c Cell) pairsOf(ch choice) (out [][2]Series) {
	if c.Suite != ch.suite {
		return nil
	}
	for _, suffix := range append([]string{""}, journals...) {
		s, ok := c.Find(ch.engine + suffix)
		other, both := c.Find(ch.against + suffix)
		if ok && both {
			out = append(out, [2]Series{s, other})
		}
	}
	return out
}

// Advise returns, for each choice that the run measured, the points at which it pays. The text
// follows from the ratios of the pairs and their spread.
func (r *Run) Advise() []Advice {
	var out []Advice
	for _, d := range r.Duels() {
		if n := len(out); n == 0 || out[n-1].Use != d.Use || out[n-1].Instead != d.Instead {
			out = append(out, Advice{Use: d.Use, Instead: d.Instead})
		}
		out[len(out)-1].add(d)
	}
	return out
}

func (a *Advice) add(d Duel) {
	switch {
	case d.tooFew:
		a.TooFew = true
	case d.Verdict == Better:
		a.Yes = append(a.Yes, d.Point+": "+d.times())
	case d.Verdict == Worse:
		a.No = append(a.No, d.Point+": "+d.times())
	case d.Saves:
		a.Yes = append(a.Yes, fmt.Sprintf("%s: as many, for %s", d.Point, share(d.CPU.Median)))
	case d.Verdict == Same:
		a.Same = append(a.Same, d.Point)
	default:
		a.Open = append(a.Open, d.Point)
	}
}

// times describes the ratio of the rates, and the ratio of the CPU time if that differs.
func (d Duel) times() string {
	text := fmt.Sprintf("%.1f times as many", d.Rate.Median)
	switch {
	case d.Rate.Median < 1:
		text = fmt.Sprintf("%.0f %% as many", 100*d.Rate.Median)
	case d.Rate.Median < 2:
		text = fmt.Sprintf("%.2f times as many", d.Rate.Median)
	}
	if d.CPU.Median > 0 && math.Abs(d.CPU.Median-1) >= minSaving {
		text += ", for " + share(d.CPU.Median)
	}
	return text
}

// share describes the CPU time per operation relative to the baseline.
func share(cpu float64) string {
	if cpu >= 2 {
		return fmt.Sprintf("%.1f times the CPU time each", cpu)
	}
	return fmt.Sprintf("%.0f %% of the CPU time each", 100*cpu)
}

// Verdict is a line of an advice. Kind is Better, Same, Worse or Unclear. Text has the points.
type Verdict struct{ Kind, Text string }

// Verdicts returns a line for each point with a difference, one line for all points without one,
// and one line for the undecided points.
func (a Advice) Verdicts() (out []Verdict) {
	if a.TooFew {
		return []Verdict{{Unclear, fmt.Sprintf("too few pairs to tell a difference from noise; use --pairs %d or more", minPairs)}}
	}
	for _, p := range a.Yes {
		out = append(out, Verdict{Better, p})
	}
	if len(a.Same) > 0 {
		out = append(out, Verdict{Same, fmt.Sprintf("no difference (within %.0f %%): ", 100*alikeWithin) + joinPoints(a.Same)})
	}
	if len(a.Open) > 0 {
		out = append(out, Verdict{Unclear, "not decided, the rounds differ too much (--pairs 10 decides more): " + joinPoints(a.Open)})
	}
	for _, p := range a.No {
		out = append(out, Verdict{Worse, p})
	}
	return out
}

// Head returns the heading, which names the choice.
func (a Advice) Head() string { return fmt.Sprintf("%s instead of %s", a.Use, a.Instead) }

// Lines returns the advice as text: a heading, then the verdicts.
func (a Advice) Lines() []string {
	out := []string{a.Head()}
	for _, v := range a.Verdicts() {
		out = append(out, map[string]string{Better: "yes: ", Worse: "no:  "}[v.Kind]+v.Text)
	}
	return out
}

var (
	testPoint  = regexp.MustCompile(`^test (\d+)(.*)$`)
	countPoint = regexp.MustCompile(`^(.*?, )(\d+) ([a-z]+?)s?((?:, .*)?)$`)
)

// joinPoints joins points. It shortens tests to "tests 2–7 and 9 (wal)", and points that differ in
// one number to "echoed messages, 1, 10 and 50 connections, 128 B".
func joinPoints(points []string) string {
	type alike struct {
		first, before, after string
		numbers              []int
	}
	var all []*alike
	known := map[[2]string]*alike{}
	for _, p := range points {
		a := alike{first: p}
		number := ""
		if m := testPoint.FindStringSubmatch(p); m != nil {
			a.before, number, a.after = "tests ", m[1], m[2]
		} else if m := countPoint.FindStringSubmatch(p); m != nil {
			a.before, number, a.after = m[1], m[2], " "+m[3]+"s"+m[4]
		}
		n, err := strconv.Atoi(number)
		if err != nil {
			all = append(all, &a)
			continue
		}
		key := [2]string{a.before, a.after}
		if known[key] == nil {
			known[key] = &a
			all = append(all, &a)
		}
		known[key].numbers = append(known[key].numbers, n)
	}
	var out []string
	for _, a := range all {
		switch {
		case len(a.numbers) < 2:
			out = append(out, a.first)
		case a.before == "tests ":
			out = append(out, a.before+joinAnd(ranges(a.numbers))+a.after)
		default:
			slices.Sort(a.numbers)
			words := make([]string, len(a.numbers))
			for i, n := range a.numbers {
				words[i] = strconv.Itoa(n)
			}
			out = append(out, a.before+joinAnd(words)+a.after)
		}
	}
	return strings.Join(out, "; ")
}

// ranges joins consecutive numbers.
func ranges(numbers []int) (out []string) {
	slices.Sort(numbers)
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		switch j - i {
		case 0:
			out = append(out, strconv.Itoa(numbers[i]))
		case 1:
			out = append(out, strconv.Itoa(numbers[i]), strconv.Itoa(numbers[j]))
		default:
			out = append(out, fmt.Sprintf("%d–%d", numbers[i], numbers[j]))
		}
		i = j + 1
	}
	return out
}

// Findings are the verdicts of a run in machine-readable form, with their ratios.
type Findings struct {
	Host Host `json:"host"`
	// Notes are conditions that disturb the figures.
	Notes   []string  `json:"notes,omitempty"`
	Choices []Finding `json:"choices"`
	Skipped []Skip    `json:"skipped,omitempty"`
}

// Finding is the verdict about one choice at one point.
type Finding struct {
	Suite    string `json:"suite"`
	Use      string `json:"use"`
	Instead  string `json:"instead"`
	Workload string `json:"workload"`
	Point    string `json:"point"`
	Params   Params `json:"params,omitempty"`
	// Verdict is about the rate: better, worse, same, or unclear if there are too few pairs or they
	// differ too much. SavesCPU reports that the rate is the same for clearly less CPU time.
	Verdict  string `json:"verdict"`
	SavesCPU bool   `json:"saves_cpu"`
	// Rate and CPU are ratios of the pairs. CPU is omitted if it is unknown.
	Rate measure.Summary  `json:"rate"`
	CPU  *measure.Summary `json:"cpu,omitempty"`
}

// Findings returns the verdicts of the run.
func (r *Run) Findings() Findings {
	f := Findings{Host: r.Host, Notes: r.Notes, Choices: []Finding{}, Skipped: r.Skipped}
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
	return f
}

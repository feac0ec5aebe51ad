// SPDX-License-Identifier: MIT

package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// SyncsShared is the metric that tells which share of the syncs that SQLite asked for was done
// together with those of other databases.
const SyncsShared = "syncs_shared"

// SQLiteTests are the names of the tests of SQLite's speed page.
var SQLiteTests = []string{
	"INSERTs", "INSERTs in a transaction", "INSERTs into an indexed table", "SELECTs without an index",
	"SELECTs on a string comparison", "Creating an index", "SELECTs with an index", "UPDATEs without an index",
	"UPDATEs with an index", "Text UPDATEs with an index", "INSERTs from a SELECT", "DELETE without an index",
	"DELETE with an index", "A big INSERT after a big DELETE", "A big DELETE followed by many small INSERTs", "DROP TABLE",
}

// SQLiteLayout arranges the suite "sqlite": a table of times for each speed test and each cold read,
// and tables of commits.
var SQLiteLayout = Layout{
	Without: []string{measure.NsPerOp, measure.BytesPerOp, measure.AllocsPerOp},
	Section: sqliteSection,
	Row: func(c Cell, engine string) string {
		if c.Params["databases"] == nil {
			return engine
		}
		return fmt.Sprintf("%s_%v", engine, sqliteCrowd(c))
	},
	Point: sqlitePoint,
	Draw: func(c Cell) DrawFunc {
		if c.Workload == "tenants" {
			return nil
		}
		return drawTimes
	},
	Ratios:  []string{measure.OpsPerS, measure.CPUUsPerOp, measure.P99Us},
	Subject: "ringside",
	Summary: sqliteSummary,
}

// sqliteCrowd is how many databases there are, or connections to one.
func sqliteCrowd(c Cell) any {
	if fmt.Sprint(c.Params["connections"]) != "1" {
		return c.Params["connections"]
	}
	return c.Params["databases"]
}

func sqliteSection(c Cell) string {
	switch {
	case c.Params["test"] != nil:
		return sqliteTest(c)
	case c.Params["what"] != nil:
		return fmt.Sprintf("cold, %s, %v rows", coldWords(c.Params["what"]), c.Params["rows"])
	case fmt.Sprint(c.Params["connections"]) != "1":
		return fmt.Sprintf("commits, %v, one database with several connections", c.Params["journal"])
	}
	return fmt.Sprintf("commits, %v, databases with a connection each%s", c.Params["journal"], besideWriter(c))
}

// sqliteTest names a speed test by its number and what it does.
func sqliteTest(c Cell) string {
	name := fmt.Sprintf("test %v", c.Params["test"])
	var n int
	if _, err := fmt.Sscan(fmt.Sprint(c.Params["test"]), &n); err == nil && n >= 1 && n <= len(SQLiteTests) {
		name += ": " + SQLiteTests[n-1]
	}
	return name
}

func coldWords(what any) string {
	switch what {
	case "scan":
		return "scan of a fragmented table"
	case "index":
		return "CREATE INDEX on a fragmented table"
	case "range":
		return "10 % of a fragmented table"
	case "lookups":
		return "a lookup in a fragmented table"
	case "contiguous":
		return "scan of a contiguous table"
	}
	return fmt.Sprint(what)
}

// sqlitePoint names a cell in a sentence.
func sqlitePoint(c Cell) string {
	switch {
	case c.Params["test"] != nil:
		return fmt.Sprintf("test %v", c.Params["test"])
	case c.Params["what"] != nil:
		return coldWords(c.Params["what"])
	case fmt.Sprint(c.Params["connections"]) != "1":
		return fmt.Sprintf("%v connections to one database (%v)", c.Params["connections"], c.Params["journal"])
	}
	return fmt.Sprintf("%s (%v%s)", plural(c.Params["databases"], "database"), c.Params["journal"], besideWriter(c))
}

// besideWriter tells of a program that writes to the file system meanwhile.
func besideWriter(c Cell) string {
	if rate, ok := c.Params["writer"]; ok {
		return fmt.Sprintf(", beside a writer of %s/s", pointBytes(rate))
	}
	return ""
}

// drawTimes tells how long each engine took: relative to the fastest, smaller is better.
func drawTimes(cells []Cell) (out []*table) {
	for _, c := range cells {
		fastest, slowest := c.extremes()
		unit, divisor := "ms", 1e6
		if slowest.mean < divisor {
			unit, divisor = "µs", 1e3
		}
		decimals := 1
		if fastest.mean < divisor {
			decimals = 3
		}
		number := func(ns float64) string { return strconv.FormatFloat(ns/divisor, 'f', decimals, 64) }
		t := &table{}
		title := []string{"Command", fmt.Sprintf("Mean [%s]", unit), fmt.Sprintf("Min [%s]", unit), fmt.Sprintf("Max [%s]", unit), "Relative", "CPU [" + unit + "]"}
		shares := anyHas([]Cell{c}, DeviceShare)
		if shares {
			title = append(title, "from the device")
		}
		t.add(nil, title...)
		for _, s := range c.Series {
			m, ok := s.moments()
			if !ok {
				continue
			}
			row := []string{
				s.Engine, number(m.mean) + " ± " + number(m.sd), number(m.min), number(m.max), m.relative(fastest), "-",
			}
			if cpu, ok := s.Summary(measure.CPUUsPerOp); ok {
				row[len(row)-1] = number(cpu.Median * 1e3)
			}
			if sum, ok := s.Summary(DeviceShare); ok && shares {
				row = append(row, formatPercent(sum.Median))
			} else if shares {
				row = append(row, "")
			}
			t.add(nil, row...)
		}
		out = append(out, t)
	}
	return out
}

// moments describe the times of a series, in nanoseconds.
type moments struct{ mean, sd, min, max float64 }

// moments returns those of the time of an operation, or false where there is none.
func (s Series) moments() (m moments, ok bool) {
	values, ok := s.values(measure.NsPerOp)
	if !ok {
		return m, false
	}
	m.min, m.max = values[0], values[0]
	for _, v := range values {
		m.mean += v / float64(len(values))
		m.min, m.max = min(m.min, v), max(m.max, v)
	}
	if len(values) > 1 {
		for _, v := range values {
			m.sd += (v - m.mean) * (v - m.mean) / float64(len(values)-1)
		}
		m.sd = math.Sqrt(m.sd)
	}
	return m, true
}

// relative tells how many times as long it took, with the error that both spreads make.
func (m moments) relative(to moments) string {
	if m == to || to.mean == 0 {
		return "1.00"
	}
	ratio := m.mean / to.mean
	return fmt.Sprintf("%.2f ± %.2f", ratio, ratio*math.Hypot(m.sd/m.mean, to.sd/to.mean))
}

// extremes returns the moments with the smallest mean and with the largest.
func (c Cell) extremes() (fastest, slowest moments) {
	for _, s := range c.Series {
		m, ok := s.moments()
		if ok && (fastest.mean == 0 || m.mean < fastest.mean) {
			fastest = m
		}
		if ok && m.mean > slowest.mean {
			slowest = m
		}
	}
	return fastest, slowest
}

// sqlitePairs are those that the summary compares: what carries the name of the second with the
// journal mode of the first.
var sqlitePairs = []struct{ engine, against, about string }{
	{"ringside", "default", ""},
	{"ringside", "ringside-plain", "the default VFS with the syncs of directories that it leaves out"},
	{"ringside-group", "default", "group sync"},
	{"ringside-log", "default", "the log that databases share"},
	{"ringside", "modernc", ""},
	{"ringside-log", "modernc", ""},
	{"ringside", "mattn", ""},
	{"ringside-log", "mattn", ""},
}

// sqliteSummary says in words what a run of the suite "sqlite" found.
func sqliteSummary(r *Run) []string {
	var out []string
	few := false
	for _, work := range []string{"speed", "tenants", "cold"} {
		for _, journal := range []string{"", "-rollback", "-persist", "-wal"} {
			for _, p := range sqlitePairs {
				line, pairs := r.sqliteCompare(work, p.engine+journal, p.against+journal)
				if line == "" {
					continue
				}
				few = few || pairs < minPairs
				about := ""
				if p.about != "" {
					about = " (" + p.about + ")"
				}
				out = append(out, fmt.Sprintf("%s, %s vs %s%s: %s", work, p.engine+journal, p.against+journal, about, line))
			}
		}
	}
	if few {
		return []string{fmt.Sprintf("too few pairs to tell a difference from noise; use --pairs %d or more", minPairs)}
	}
	return out
}

// sqliteCompare judges one engine against another in all cells of a workload.
func (r *Run) sqliteCompare(work, engine, against string) (line string, pairs int) {
	cells := slices.DeleteFunc(slices.Clone(r.Cells), func(c Cell) bool { return c.Workload != work })
	t := tallyOf(cells, engine, against, sqlitePoint)
	points := t.points
	var parts []string
	for _, p := range []struct {
		v     verdict
		words string
	}{{faster, "faster at "}, {slower, "slower at "}} {
		if len(points[p.v]) > 0 {
			parts = append(parts, p.words+joinAnd(points[p.v]))
		}
	}
	if rest := slices.Concat(points[alike], points[undecided]); len(rest) > 0 {
		n, words := len(rest), joinAnd(rest)
		if n > 4 {
			words = fmt.Sprintf("%d points", n)
		}
		parts = append(parts, "no difference beyond the spread at "+words)
		parts = append(parts, rangeWords("there the rate is", t.same)...)
	}
	if len(points[tooFew]) > 0 {
		parts = append(parts, "too few pairs")
	}
	return strings.Join(parts, "; "), t.pairs
}

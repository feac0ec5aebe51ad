// SPDX-License-Identifier: MIT

package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// answerLines is the greatest number of lines of an answer.
const answerLines = 15

// Answer returns the findings of the run in words: a summary, gains from the greatest, losses, what
// makes no difference, and what is open with the command that decides it. It has at most fifteen
// lines, and none if there is nothing to compare.
func (r *Run) Answer() []string {
	claims := r.Claims()
	if len(claims) == 0 {
		return nil
	}
	var out []string
	groups := groupsOf(claims)
	gains, losses := lines(groups, Gain), lines(groups, Loss)
	none := alikeLine(groups)
	open := openLines(claims)
	room := answerLines - 1 - len(none)
	open = shorten(open, max(1, min(len(open), room-len(gains)-len(losses))), "open")
	losses = shorten(losses, max(3, min(len(losses), room-len(open)-len(gains))), "lose")
	gains = shorten(gains, room-len(open)-len(losses), "gain")
	return slices.Concat(append(out, Summary(claims)), gains, losses, none, open)
}

// shorten keeps n lines, and says how many follow.
func shorten(lines []string, n int, kind string) []string {
	if len(lines) <= n {
		return lines
	}
	return append(slices.Clone(lines[:n-1]), fmt.Sprintf("%-5s%d more: --tables shows all", kind, len(lines)-n+1))
}

// Summary counts the claims of each kind in a sentence.
func Summary(claims []Claim) string {
	n := map[string]int{}
	for _, c := range claims {
		n[c.Kind]++
	}
	say := func(n int, one, many string) string {
		if n == 1 {
			return "1 " + one
		}
		return fmt.Sprintf("%d %s", n, many)
	}
	return fmt.Sprintf("Of %s %s, %s, %s, %s.", counted("question")(len(claims)), say(n[Gain], "gains", "gain"),
		say(n[Loss], "loses", "lose"), say(n[None], "makes no difference", "make no difference"), say(n[Open], "is open", "are open"))
}

// claimGroup is the claims of one kind about one choice and one workload.
type claimGroup struct {
	Claim
	claims []Claim
}

func groupsOf(claims []Claim) (out []claimGroup) {
	for _, c := range claims {
		i := slices.IndexFunc(out, func(g claimGroup) bool {
			return g.Kind == c.Kind && g.Use == c.Use && g.Instead == c.Instead && g.Workload == c.Workload
		})
		if i < 0 {
			i = len(out)
			out = append(out, claimGroup{Claim: c})
		}
		out[i].claims = append(out[i].claims, c)
	}
	return out
}

// effect is the size of a claim's difference: of the rate, or of CPU time if that decided.
func (c Claim) effect() float64 {
	if !c.byCPU() {
		return math.Abs(math.Log(c.Rate.Ratio))
	}
	return math.Abs(math.Log(c.CPU.Ratio)) / 4
}

// lines returns a line for each group of a kind, the greatest difference first.
func lines(groups []claimGroup, kind string) (out []string) {
	groups = slices.DeleteFunc(slices.Clone(groups), func(g claimGroup) bool { return g.Kind != kind })
	for _, g := range groups {
		slices.SortStableFunc(g.claims, func(a, b Claim) int { return cmp.Compare(b.effect(), a.effect()) })
	}
	slices.SortStableFunc(groups, func(a, b claimGroup) int { return cmp.Compare(b.claims[0].effect(), a.claims[0].effect()) })
	for _, g := range groups {
		common, rest := g.words()
		var said []string
		for i, c := range g.claims {
			said = append(said, strings.TrimSpace(rest[i]+" "+c.ratios()))
		}
		out = append(out, fmt.Sprintf("%-5s%s instead of %s, %s: %s", kind, g.Use, g.Instead, common, strings.Join(said, ", ")))
	}
	return out
}

// words returns the words that all points of a group share, and the other words of each.
func (g claimGroup) words() (common string, rest []string) {
	points := make([][]string, len(g.claims))
	for i, c := range g.claims {
		points[i] = strings.Split(c.Point, ", ")
	}
	shared := slices.DeleteFunc(slices.Clone(points[0]), func(w string) bool {
		return slices.ContainsFunc(points, func(p []string) bool { return !slices.Contains(p, w) })
	})
	for _, p := range points {
		rest = append(rest, strings.Join(slices.DeleteFunc(p, func(w string) bool { return slices.Contains(shared, w) }), " "))
	}
	return strings.Join(shared, ", "), rest
}

// ratios describes the rate with its interval, CPU time if it differs, and latency if it is worse by
// more than a tenth.
func (c Claim) ratios() string {
	text := c.Rate.String()
	var more []string
	if c.byCPU() {
		text = "CPU " + c.CPU.String()
		more = append(more, "at a rate of "+c.Rate.String())
	} else if c.cpuTold && !c.CPU.alike() {
		more = append(more, fmt.Sprintf("CPU %.2f", c.CPU.Ratio))
	}
	if c.P99.known() && c.P99.Low > 1+minSaving {
		more = append(more, fmt.Sprintf("p99 %.1fx", c.P99.Ratio))
	}
	if len(more) > 0 {
		text += " " + strings.Join(more, " ")
	}
	return text
}

// minSaving is the share by which latency must be worse to be mentioned.
const minSaving = 0.1

// String returns the ratio and its interval.
func (i Interval) String() string {
	if !i.bounded() {
		return fmt.Sprintf("%.2fx", i.Ratio)
	}
	return fmt.Sprintf("%.2fx (%.2f–%.2f)", i.Ratio, i.Low, i.High)
}

// alikeLine returns the line about what makes no difference, if there is any.
func alikeLine(groups []claimGroup) []string {
	var said []string
	for _, g := range groups {
		if g.Kind != None {
			continue
		}
		common, rest := g.words()
		if rest = slices.DeleteFunc(rest, func(s string) bool { return s == "" }); len(rest) > 0 {
			common += " " + strings.Join(rest, ", ")
		}
		said = append(said, fmt.Sprintf("%s, %s", g.Use, common))
	}
	if len(said) == 0 {
		return nil
	}
	return []string{"same within 5 %: " + strings.Join(said, "; ")}
}

// openLines returns a line for each open claim, the most interesting first.
func openLines(claims []Claim) (out []string) {
	claims = slices.DeleteFunc(slices.Clone(claims), func(c Claim) bool { return c.Kind != Open })
	slices.SortStableFunc(claims, func(a, b Claim) int { return cmp.Compare(b.effect(), a.effect()) })
	for _, c := range claims {
		between := "too few starts to tell"
		if c.Rate.bounded() {
			between = fmt.Sprintf("between %.2f and %.2f times as many", c.Rate.Low, c.Rate.High)
		}
		out = append(out, fmt.Sprintf("%-5s%s instead of %s, %s: %s; %s", Open, c.Use, c.Instead, c.Point, between, c.Command()))
	}
	return out
}

// rowParams are the parameters of each suite that label a row of a table. The other parameters are
// in the title of the table.
var rowParams = map[string][]string{
	"file":    {"block", "count", "computing"},
	"net":     {"connections", "computing"},
	"replica": {"databases", "connections"}, // of replica/bench
	"ring":    {"batch", "depth"},
	"sqlite":  {"databases", "connections"},
	Try:       {},
	"watch":   {"mode", "active", "idle"},
}

// paramWords are the words for the value of a parameter, in the order in which a sentence has them.
// Parameters without an entry are described by name and value.
var paramWords = []struct {
	param string
	words func(v any) string
}{
	{"storage", oneOf(map[string]string{"fast": "fast device"})},
	{"cache", oneOf(map[string]string{"hot": "page cache hot", "direct": "O_DIRECT", "cold": "page cache cold"})},
	{"ring", oneOf(map[string]string{"default": "default ring", "defer": "single issuer with deferred task work"})},
	{"source", oneOf(map[string]string{
		"eventfd": "eventfds", "socketpair": "pairs of sockets", "wake": "wakes from another goroutine",
	})},
	{"program", text("%v")},
	{"load", text("under %v")},
	{"changes", text("%v")},
	{"mode", text("%v")},
	{"active", text("%v active")},
	{"idle", text("with %v idle")},
	{"test", sqliteTest},
	{"what", oneOf(map[string]string{
		"scan": "scan of a fragmented table", "index": "CREATE INDEX on a fragmented table", "range": "10 % of a fragmented table",
		"lookups": "a lookup in a fragmented table", "contiguous": "scan of a contiguous table",
		"norowid": "scan of a fragmented table WITHOUT ROWID", "16k": "scan of a fragmented table with pages of 16 KiB",
	})},
	{"rows", text("%v rows")},
	{"journal", text("%v")},
	{"databases", counted("database")},
	{"requests", text("%v requests")},
	{"connections", counted("connection")},
	{"keepalive", oneOf(map[string]string{"true": "connections kept", "false": "a connection for each"})},
	{"goroutines", counted("goroutine")},
	{"computing", text("%v computing")},
	{"count", text("%v at a time")},
	{"messages", text("%v at a time")},
	{"size", byteWords},
	{"block", byteWords},
	{"body", func(v any) string { return "bodies of " + byteWords(v) }},
	{"record", func(v any) string { return "records of " + byteWords(v) }},
	{"direction", text("%v")},
	{"handler", text("%v")},
	{"mix", text("mix %v")},
	{"client", oneOf(map[string]string{"own": "own load generator"})},
	{"gomaxprocs", text("GOMAXPROCS %v")},
	{"writer", func(v any) string { return "with a writer of " + byteWords(v) + "/s" }},
	{"batch", text("batch %v")},
	{"depth", text("%v in flight")},
}

// text returns a function that formats a value.
func text(format string) func(any) string {
	return func(v any) string { return fmt.Sprintf(format, v) }
}

// oneOf returns a function that looks words up.
func oneOf(words map[string]string) func(any) string {
	return func(v any) string { return cmp.Or(words[fmt.Sprint(v)], fmt.Sprint(v)) }
}

// counted returns a function that puts a number before a noun.
func counted(noun string) func(any) string {
	return func(n any) string {
		if fmt.Sprint(n) == "1" {
			return "1 " + noun
		}
		return fmt.Sprint(n) + " " + noun + "s"
	}
}

// byteWords returns the words for a number of bytes.
func byteWords(v any) string {
	if n, ok := number(v); ok {
		return FormatBytes(int64(n))
	}
	return fmt.Sprint(v)
}

// number returns the value of a parameter that is a number.
func number(v any) (float64, bool) {
	switch n := v.(type) {
	case int:
		return float64(n), true
	case int64:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}

// Number returns the value of a parameter that is a number.
func (p Params) Number(param string) (float64, bool) { return number(p[param]) }

// Words describes all parameters except the given ones and the device.
func (p Params) Words(except ...string) []string {
	rest := maps.Clone(p)
	maps.DeleteFunc(rest, func(param string, _ any) bool { return param == "device" || slices.Contains(except, param) })
	var out []string
	for _, known := range paramWords {
		if v, ok := rest[known.param]; ok {
			out = append(out, known.words(v))
			delete(rest, known.param)
		}
	}
	for _, param := range slices.Sorted(maps.Keys(rest)) {
		out = append(out, fmt.Sprintf("%s %v", param, rest[param]))
	}
	return out
}

// rowParams returns the parameters that label the row of a cell.
func (c Cell) rowParams() []string {
	switch {
	case c.Params["handler"] != nil:
		return []string{"handler"}
	case c.opens(): // the title has the block
		return nil
	}
	return slices.DeleteFunc(slices.Clone(rowParams[c.Suite]), func(param string) bool { return c.Params[param] == nil })
}

// section returns the title of the cell's table.
func (c Cell) section() string { return c.Words(c.rowParams()...) }

// Words describes the cell by its workload and all parameters except the given ones and the device.
func (c Cell) Words(except ...string) string { return c.words(c.Workload, except...) }

// words describes the cell by the given words for its workload, and by its parameters. The words
// for the workload "open" of the suite "file" include its parameters.
func (c Cell) words(work string, except ...string) string {
	if c.opens() {
		work, except = "open and close", append([]string{"block", "cache"}, except...)
		if block := c.Params["block"]; block != nil {
			from := oneOf(map[string]string{"hot": "from the page cache", "direct": "with O_DIRECT"})(c.Params["cache"])
			work = fmt.Sprintf("open, read %s %s, close", byteWords(block), from)
		}
	}
	return strings.Join(append([]string{work}, c.Params.Words(except...)...), ", ")
}

// opens reports whether the cell is one of the workload "open".
func (c Cell) opens() bool { return c.Suite == "file" && c.Workload == "open" }

// row returns the label of an engine's row in a table of the cell.
func (c Cell) row(engine string) string {
	for _, param := range c.rowParams() {
		engine += "_" + strings.ReplaceAll(fmt.Sprint(c.Params[param]), " ", "_")
	}
	return engine
}

// works are descriptions of workloads whose names are not clear.
var works = map[string]string{
	"randread": "random reads", "batch": "reads in one call", "burner": "random reads during computation",
	"append": "durable appends", "randwrite": "overwrites", "sync": "durable overwrites", "pebble": "calls of pebble",
	"echo": "echoed messages", "pipeline": "pipelined messages", "stream": "a stream in one direction",
	"churn": "a connection for each message", "unix": "messages on Unix sockets", "udp": "datagrams", "udp-bulk": "answers of 64 datagrams",
	"computing": "echoed messages during computation", "dial": "calls of another server",
	"fasthttp": "requests to fasthttp",
	"tls":      "messages over TLS", "handlers": "requests to a handler", "idle": "idle connections",
	"program": "unchanged", "tenants": "commits", "cold": "not cached", "nop": "no-ops", "read": "random reads",
}

// point describes the work of a cell in words that need no context.
func (c Cell) point() string {
	if test := c.Params["test"]; test != nil {
		return fmt.Sprintf("test %v", test)
	}
	work := cmp.Or(works[c.Workload], c.Workload)
	if c.Workload == "speed" {
		return "speed tests (geometric mean)"
	}
	if c.Workload == "http" {
		work = "HTTP requests"
	}
	return c.words(work, "rows", "requests", "client")
}

// SQLiteTests are the names of the tests of SQLite's speed page.
var SQLiteTests = []string{
	"INSERTs", "INSERTs in a transaction", "INSERTs into an indexed table", "SELECTs without an index",
	"SELECTs on a string comparison", "Creating an index", "SELECTs with an index", "UPDATEs without an index",
	"UPDATEs with an index", "Text UPDATEs with an index", "INSERTs from a SELECT", "DELETE without an index",
	"DELETE with an index", "A big INSERT after a big DELETE", "A big DELETE followed by many small INSERTs", "DROP TABLE",
}

// sqliteTest returns the number and description of a speed test.
func sqliteTest(v any) string {
	name := fmt.Sprintf("test %v", v)
	if n, ok := number(v); ok && n >= 1 && int(n) <= len(SQLiteTests) {
		name += ": " + SQLiteTests[int(n)-1]
	}
	return name
}

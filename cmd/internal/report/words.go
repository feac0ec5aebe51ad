// SPDX-License-Identifier: MIT

package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

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

// joinAnd joins words with commas and "and".
func joinAnd(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// maxStolen is the share of stolen time from which on results are affected.
const maxStolen = 0.02

// Fact is one circumstance of a run.
type Fact struct{ Name, Value string }

// Facts returns the known circumstances of the run.
func (h Host) Facts() []Fact {
	var out []Fact
	add := func(name string, parts ...string) {
		parts = slices.DeleteFunc(slices.Clone(parts), func(p string) bool { return p == "" })
		if len(parts) > 0 {
			out = append(out, Fact{name, strings.Join(parts, ", ")})
		}
	}
	memory, commit := "", ""
	if h.Memory > 0 {
		memory = fmt.Sprintf("%.1f GiB memory", float64(h.Memory)/(1<<30))
	}
	if h.Commit != "" {
		commit = "commit " + h.Commit
	}
	add("kernel", h.OS+"/"+h.Arch, h.Kernel)
	add("cpu", h.CPU, fmt.Sprintf("%d cores", h.Cores), fmt.Sprintf("GOMAXPROCS %d", h.GOMAXPROCS), memory)
	add("storage", h.Device, h.Filesystem, h.Mount)
	if h.FileBytes > 0 {
		verified := "content not verified, as this run did not make it"
		if h.Verified {
			verified = "content of reads verified"
		}
		add("file", mebibytes(h.FileBytes), verified)
	}
	for _, st := range h.Storages {
		add(st.Name, st.Filesystem, st.Device, mebibytes(st.FileBytes))
	}
	add("versions", h.Go, "ringside "+h.Ringside, commit)
	add("backend", h.Backend, h.Reason)
	add("peers", h.Peers...)
	var method []string
	if h.Starts > 0 {
		method = append(method, fmt.Sprintf("turns of %d starts", h.Starts))
	}
	if rounds := fmt.Sprintf("%d rounds", h.Pairs); h.DurationMs > 0 { // otherwise a round ends when its work is done
		method = append(method, fmt.Sprintf("%s of %.0f ms where engines cannot take turns", rounds, h.DurationMs))
	}
	add("method", append(method, fmt.Sprintf("seed %d", h.Seed))...)
	if h.Stolen >= maxStolen {
		add("host", fmt.Sprintf("took %.0f %% of this virtual machine's time: take differences below 10 %% for noise, and measure again when it is less busy", 100*h.Stolen))
	}
	return out
}

func mebibytes(n int64) string { return strconv.FormatInt(n>>20, 10) + " MiB" }

// WriteHeader writes the circumstances of the run in lines of "name: value".
func (h Host) WriteHeader(w io.Writer) error {
	var b strings.Builder
	for _, f := range h.Facts() {
		fmt.Fprintf(&b, "%-9s %s\n", f.Name+":", f.Value)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteSkipped writes each part that was not measured, with the reason.
func (r *Run) WriteSkipped(w io.Writer) error {
	for _, s := range r.Skipped {
		if _, err := fmt.Fprintf(w, "skipped: %s\n", s); err != nil {
			return err
		}
	}
	return nil
}

// String describes the part and the reason.
func (s Skip) String() string {
	name := strings.TrimSpace(s.Suite + " " + s.Workload)
	if s.Engine != "" {
		name += ", engine " + s.Engine
	}
	return strings.Join(append([]string{name}, s.Params.Words()...), ", ") + ": " + s.Reason
}

// SPDX-License-Identifier: MIT

package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/perf/benchfmt"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// series makes samples whose rate follows the given values.
func series(engine string, heap bool, threads float64, rates ...float64) Series {
	s := Series{Engine: engine}
	for _, rate := range rates {
		m := map[string]float64{
			measure.OpsPerS: rate, measure.MBPerS: rate * 4096 / 1e6, measure.NsPerOp: 1e9 / rate,
			measure.P50Us: 64e6 / rate, measure.P99Us: 256e6 / rate, measure.MaxUs: 1e9 / rate,
			measure.CPUUsPerOp: 1e6 / rate,
		}
		if heap {
			m[measure.BytesPerOp], m[measure.AllocsPerOp] = 0, 0
		}
		if threads > 0 {
			m[measure.Threads] = threads
		}
		s.Samples = append(s.Samples, Sample{Start: len(s.Samples), Iterations: int64(rate / 4), Metrics: m})
	}
	return s
}

// cold adds the share of the bytes that came from the device.
func cold(s Series, share float64) Series {
	for _, sample := range s.Samples {
		sample.Metrics[DeviceShare] = share
	}
	return s
}

func params(block, goroutines int, cache string) Params {
	return Params{"block": block, "goroutines": goroutines, "cache": cache, "device": "vda"}
}

func exampleRun() *Run {
	cell := func(p Params, s ...Series) Cell {
		return Cell{Suite: "file", Workload: "randread", Params: p, Series: s}
	}
	fast := params(4096, 128, "direct")
	fast["storage"], fast["device"] = "fast", "loop device in memory"
	return &Run{
		Host: Host{
			Time: "2026-01-02T03:04:05Z", OS: "linux", Arch: "amd64", Kernel: "6.18.0", CPU: "Example CPU",
			Cores: 2, GOMAXPROCS: 2, Memory: 8 << 30, Device: "vda", Filesystem: "ext4", Mount: "rw,relatime",
			FileBytes: 1 << 30, Verified: true, Go: "go1.26.0", Ringside: "(devel)", Commit: "0123456789ab",
			Backend: "io_uring", Reason: "all needed operations are there", Seed: 42, Pairs: 5, DurationMs: 250,
			Peers:    []string{"fio-3.33"},
			Storages: []Storage{{Name: "fast", Device: "loop device in memory", Filesystem: "xfs", FileBytes: 1 << 30}},
		},
		Cells: []Cell{
			cell(params(4096, 1, "hot"), series("os", true, 7, 2e6, 2e6, 2e6, 2e6, 2e6),
				series("ringside", true, 7, 1.98e6, 2e6, 2.1e6, 1.9e6, 2e6)),
			cell(params(4096, 128, "direct"), series("os", true, 131, 44e3, 45e3, 46e3, 45e3, 44e3),
				series("ringside", true, 8, 88e3, 89e3, 90e3, 88e3, 91e3),
				series("fio", false, 0, 90e3, 90e3, 90e3, 90e3, 90e3)),
			cell(params(1<<20, 128, "direct"), series("os", true, 131, 2000, 2000, 2000, 2000, 2000),
				series("ringside", true, 8, 1800, 1810, 1790, 1800, 1805),
				series("fio", false, 0, 2000, 2000, 2000, 2000, 2000)),
			cell(params(4096, 32, "cold"), cold(series("os", true, 35, 40e3, 40e3, 40e3, 40e3, 40e3), 1),
				cold(series("ringside", true, 8, 80e3, 80e3, 80e3, 80e3, 80e3), 0.98)),
			cell(fast, series("os", true, 131, 70e3, 70e3, 70e3, 70e3, 70e3),
				series("ringside", true, 8, 280e3, 280e3, 281e3, 280e3, 280e3),
				series("fio", false, 0, 290e3, 290e3, 290e3, 290e3, 290e3),
				series("fio-fixed", false, 0, 350e3, 350e3, 350e3, 350e3, 350e3)),
		},
		Notes: []string{"this is an example"},
		Skipped: []Skip{{
			Suite: "file", Workload: "randread", Params: Params{"cache": "direct"},
			Reason: "the file system has no O_DIRECT",
		}},
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-want +got); run the test with -update if that is intended\n%s", path, diff)
	}
}

func TestJSONGolden(t *testing.T) {
	var b bytes.Buffer
	if err := exampleRun().WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "run.json", b.Bytes())
}

// TestJSONSchema reads the document as another program would: by key, without the Go types.
func TestJSONSchema(t *testing.T) {
	var b bytes.Buffer
	if err := exampleRun().WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Schema  int
		Host    map[string]any
		Notes   []string
		Results []struct {
			Suite, Workload, Engine string
			Params                  map[string]any
			Metrics                 map[string]map[string]float64
		}
		Ratios []struct {
			Suite, Workload, Engine, Against, Metric string
			Median, Min, Max                         float64
		}
	}
	if err := json.Unmarshal(b.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Results) != 14 || doc.Host["seed"] != 42.0 || doc.Schema != SchemaVersion || len(doc.Notes) != 1 {
		t.Fatalf("%d results, schema %d, notes %v, host %v", len(doc.Results), doc.Schema, doc.Notes, doc.Host)
	}
	for _, r := range doc.Results {
		m := r.Metrics["ops_per_s"]
		if len(m) != 3 || m["min"] > m["median"] || m["median"] > m["max"] || m["min"] == 0 {
			t.Errorf("%s %v: %v", r.Engine, r.Params, m)
		}
	}
	found := map[string]bool{}
	for _, r := range doc.Ratios {
		found[r.Engine+"/"+r.Against+"/"+r.Metric] = true
		if r.Engine == r.Against || r.Engine == "os" {
			t.Errorf("ratio of %s against %s", r.Engine, r.Against)
		}
	}
	for _, metric := range []string{"ops_per_s", "cpu_us_per_op", "p99_us"} {
		for _, pair := range []string{"ringside/os/", "ringside/fio/", "ringside/fio-fixed/", "fio/os/"} {
			if !found[pair+metric] {
				t.Errorf("no ratio %s", pair+metric)
			}
		}
	}
}

func TestEmptyRunHasEmptyLists(t *testing.T) {
	var b bytes.Buffer
	if err := (&Run{}).WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"results": []`, `"ratios": []`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s is missing in %s", want, b.String())
		}
	}
}

func TestBenchFormatParsesBack(t *testing.T) {
	run := exampleRun()
	var b bytes.Buffer
	if err := run.WriteBench(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "run.bench", b.Bytes())
	reader := benchfmt.NewReader(&b, "run.bench")
	lines := map[string]int{}
	for reader.Scan() {
		if unit, ok := reader.Result().(*benchfmt.UnitMetadata); ok {
			if unit.Unit != "op/s" || unit.Value != "higher" {
				t.Errorf("unit %+v", unit)
			}
			continue
		}
		res, ok := reader.Result().(*benchfmt.Result)
		if !ok {
			t.Fatalf("not a benchmark line: %v", reader.Result())
		}
		lines[string(res.Name)]++
		seconds, ok := res.Value("sec/op")
		rate, ok2 := res.Value("op/s")
		if !ok || !ok2 || math.Abs(seconds*rate-1) > 1e-9 || res.GetConfig("kernel") != "6.18.0" || res.Iters == 0 {
			t.Errorf("%s: sec/op %v, op/s %v, config %v", res.Name, seconds, rate, res.Config)
		}
	}
	if err := reader.Err(); err != nil {
		t.Fatal(err)
	}
	if len(lines) != 14 {
		t.Errorf("%d names: %v", len(lines), lines)
	}
	if n := lines["Randread/block=4096/cache=direct/goroutines=128/engine=ringside-2"]; n != 5 {
		t.Errorf("got %d lines for five samples in %v", n, lines)
	}
}

func TestTableGolden(t *testing.T) {
	run := exampleRun()
	var b bytes.Buffer
	if err := run.Host.WriteHeader(&b); err != nil {
		t.Fatal(err)
	}
	b.WriteString("\n")
	if err := run.WriteTable(&b, Style{}); err != nil {
		t.Fatal(err)
	}
	b.WriteString(answer(run) + "\n")
	if err := run.WriteSkipped(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "run.txt", b.Bytes())
	if strings.Contains(b.String(), "\x1b") {
		t.Error("unrequested colour")
	}
}

// TestStolenTime checks that a report names the time that a host took from a virtual machine.
func TestStolenTime(t *testing.T) {
	for share, want := range map[float64]string{0: "", .01: "", .25: "host:     took 25 % of this virtual machine's time: "} {
		var b strings.Builder
		if err := (Host{Stolen: share}).WriteHeader(&b); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); !strings.Contains(got, want) || (want == "") == strings.Contains(got, "host:") {
			t.Errorf("%v: %q", share, got)
		}
	}
}

func TestSectionNamesAllParameters(t *testing.T) {
	c := Cell{Suite: "file", Workload: "batch", Params: Params{"block": 4096, "cache": "direct", "goroutines": 1, "count": 128}}
	for got, want := range map[string]string{
		c.section(): "batch, O_DIRECT, 1 goroutine", c.row("os"): "os_4096_128", c.point(): "reads in one call, O_DIRECT, 1 goroutine, 128 at a time, 4 KiB",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	c = Cell{Suite: "file", Workload: "append", Params: Params{"goroutines": 64, "storage": "fast", "record": 128, "unknown": 1}}
	if got := c.section(); got != "append, fast device, 64 goroutines, records of 128 B, unknown 1" {
		t.Errorf("section %q", got)
	}
}

func TestOpenIsDescribedInTitles(t *testing.T) {
	for want, p := range map[string]Params{
		"open and close, 1 goroutine":                                     {"goroutines": 1, "device": "vda"},
		"open, read 4 KiB from the page cache, close, 16 goroutines":      {"goroutines": 16.0, "cache": "hot", "block": 4096.0},
		"open, read 8 KiB with O_DIRECT, close, fast device, 1 goroutine": {"goroutines": 1, "cache": "direct", "block": 8192, "storage": "fast"},
	} {
		c := Cell{Suite: "file", Workload: "open", Params: p}
		if c.section() != want || c.point() != want || c.row("os") != "os" {
			t.Errorf("%v: section %q, point %q, row %q", p, c.section(), c.point(), c.row("os"))
		}
	}
}

func TestTableFitsTheScreen(t *testing.T) {
	run := exampleRun()
	c := &run.Cells[2]
	for i := range c.Series {
		for j := range c.Series[i].Samples {
			m := c.Series[i].Samples[j].Metrics
			m[measure.NsPerOp], m[measure.P50Us], m[measure.P99Us] = 9_999_999, 999_999, 9_999_999
			m[measure.OpsPerS] *= 1000
			m[measure.CPUUsPerOp] = 9999
		}
	}
	var b bytes.Buffer
	if err := run.WriteTable(&b, Style{}); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 150 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestTableColour(t *testing.T) {
	var b bytes.Buffer
	if err := exampleRun().WriteTable(&b, Style{Color: true}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\x1b[32m1.99x", "\x1b[31m0.90x"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing", want)
		}
	}
}

func TestFormat(t *testing.T) {
	for in, want := range map[float64]string{
		0.5: "0.500", 9.9994: "9.999", 9.9996: "10.00", 12.345: "12.35", 123.45: "123.5", 999.96: "1000", 123456.7: "123457",
	} {
		if got := formatNumber(in); got != want {
			t.Errorf("formatNumber(%v) = %s, want %s", in, got, want)
		}
	}
	for in, want := range map[float64]string{0: "0", 0.004: "0", 0.25: "0.25", 4: "4", 821.4: "821"} {
		if got := formatCount(in); got != want {
			t.Errorf("formatCount(%v) = %s, want %s", in, got, want)
		}
	}
	for in, want := range map[int64]string{0: "0 B", 100: "100 B", 4096: "4 KiB", 1 << 20: "1 MiB", 5000: "5000 B", 3 << 30: "3 GiB"} {
		if got := FormatBytes(in); got != want {
			t.Errorf("FormatBytes(%d) = %s, want %s", in, got, want)
		}
	}
}

// TestTablesFitTheTerminal checks that a table is written in parts if the terminal is narrow.
func TestTablesFitTheTerminal(t *testing.T) {
	for _, width := range []int{60, 80} {
		var b strings.Builder
		if err := netExample(5).WriteTable(&b, Style{Width: width}); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("a line has %d of %d columns: %q", n, width, line)
			}
		}
		if n := strings.Count(b.String(), "vs std"); n < 2 {
			t.Errorf("%d columns compare:\n%s", n, &b)
		}
	}
}

// TestStarvedLatency checks that a claim has no ratio of latencies if those of one engine are only those of
// the callers that ran.
func TestStarvedLatency(t *testing.T) {
	run := func(goroutines int, p99 float64) Claim {
		c := Cell{Suite: "file", Workload: "randread", Params: params(4096, goroutines, "direct")}
		for _, e := range []struct {
			name      string
			rate, p99 float64
		}{{"os", 40_000, p99}, {"ringside", 100_000, 2000}} {
			s := Series{Engine: e.name}
			for start := range 5 {
				for range 4 {
					s.Samples = append(s.Samples, Sample{Start: start, Metrics: map[string]float64{"ops_per_s": e.rate, "p99_us": e.p99}})
				}
			}
			c.Series = append(c.Series, s)
		}
		r := &Run{Cells: []Cell{c}}
		return r.Claims()[0]
	}
	if c := run(128, 110); c.P99.known() { // 128 callers at 40,000 a second wait for 3.2 ms each
		t.Errorf("p99 %v of callers that starve", c.P99)
	}
	if c := run(1, 10); math.Abs(c.P99.Ratio-200) > 1e-9 { // of one that pauses, as at an offered load
		t.Errorf("p99 %v of one caller, want 200", c.P99)
	}
	if c := run(128, 4000); math.Abs(c.P99.Ratio-0.5) > 1e-9 {
		t.Errorf("p99 %v, want 0.5", c.P99)
	}
}

// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/report"
)

// TestTryReadsLoads checks what is read from the output of load generators.
func TestTryReadsLoads(t *testing.T) {
	for _, tc := range []struct {
		out       string
		rate, p99 float64 // p99 in milliseconds
	}{
		{"  Latency Distribution\n     50%  633.00us\n     99%    2.05ms\n  50000 requests in 5.0s, 6.1MB read\nRequests/sec:   9876.54\nTransfer/sec: 1MB\n", 9876.54, 2.05},
		{"Requests per second:    1234.50 [#/sec] (mean)\nPercentage of the requests\n  98%     12\n  99%     15\n 100%     20 (longest request)\n", 1234.5, 15},
		{"read 1000 blocks\n25000 reads/s, p99 900µs\n", 25000, 0.9},
		{"NATS Core NATS publisher stats: 1,784,530 msgs/sec ~ 217 MiB/sec ~ 0.56us\n", 1784530, 0},
		{"done\n", 0, 0},
	} {
		m := metrics(tc.out, 2*time.Second, time.Second)
		rate, cpu := 0.5, 1e6 // of the load as one operation
		if tc.rate > 0 {
			rate, cpu = tc.rate, 1e6/(2*tc.rate)
		}
		_, timed := m[measure.NsPerOp]
		if m[measure.OpsPerS] != rate || math.Abs(m[measure.P99Us]-1000*tc.p99) > 1e-6 ||
			timed != (tc.rate == 0) || math.Abs(m[measure.CPUUsPerOp]-cpu) > 1e-6 {
			t.Errorf("%q: %v", tc.out, m)
		}
	}
}

// cell is a run with these samples.
func cell(samples [2][]report.Sample) *report.Run {
	return &report.Run{Cells: []report.Cell{{Suite: report.Try, Workload: "program", Series: []report.Series{
		{Engine: "go", Samples: samples[0]}, {Engine: "ringside", Samples: samples[1]},
	}}}}
}

// TestTryNull compares a program with itself: at most one comparison in twenty may claim a difference.
// One that is larger than the noise must be found.
func TestTryNull(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	claims, found := 0, 0
	const times = 2000
	for range times {
		var null, gain [2][]report.Sample
		for start := range 8 {
			for i := range 2 {
				s := func(ratio float64) report.Sample {
					return report.Sample{Start: start, Metrics: map[string]float64{
						measure.OpsPerS: ratio * math.Exp(r.NormFloat64()*0.05), measure.CPUUsPerOp: math.Exp(r.NormFloat64() * 0.05),
						measure.P99Us: math.Exp(r.NormFloat64() * 0.3),
					}}
				}
				null[i], gain[i] = append(null[i], s(1)), append(gain[i], s(1+0.3*float64(i)))
			}
		}
		if !strings.HasPrefix(answer(cell(null)), "No gain here") {
			claims++
		}
		if strings.Contains(answer(cell(gain)), "rate 1.") {
			found++
		}
	}
	if claims > times/20 || found < times*9/10 {
		t.Errorf("%d of %d null comparisons claim a difference, %d of %d gains were found", claims, times, found, times)
	}
}

// TestTry builds a program that serves, and loads it.
func TestTry(t *testing.T) {
	if runtime.GOOS != "linux" || testing.Short() {
		t.Skip("needs Linux, and compiles the standard library: left out with -short")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module program\n\ngo 1.26\n",
		"main.go": `package main

import "os"

func main() {
	if err := os.WriteFile(os.Args[1], nil, 0o600); err != nil {
		panic(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	defer w.Close()
	_, _ = r.Read(make([]byte, 1))
}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	page, result := filepath.Join(dir, "page.html"), filepath.Join(dir, "result.json")
	load := "while ! [ -e ready ]; do sleep 0.01; done; rm ready; echo 5 ops/s, p99 3 ms"
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{
		"try", "--starts", "4", "--load", load, "--before", "echo x >>before", "--html", page, "--json", result, ".", "--", "ready",
	}, &stdout, &stderr)
	if out := stdout.String(); code != exitOK || !strings.HasPrefix(out, "No gain here") || !strings.Contains(out, "rate            1.00x") ||
		!strings.Contains(out, "note: the program did not use ringside") {
		t.Errorf("try: %d, %s\n%s", code, out, &stderr)
	}
	if ran, err := os.ReadFile("before"); err != nil || len(ran) != 16 {
		t.Errorf("--before: %v, %q, want eight lines", err, ran)
	}
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "ringside build instead of go build") {
		t.Errorf("the page: %v\n%.500s", err, text)
	}
	stdout.Reset()
	if code := run(t.Context(), []string{"report", result}, &stdout, &stderr); code != exitOK || !strings.Contains(stdout.String(), "ringside build, unchanged, . ready") {
		t.Errorf("report: %d, %s\n%s", code, &stdout, &stderr)
	}
	stdout.Reset()
	stderr.Reset()
	if code := run(t.Context(), []string{"try", "--load", "exit 3", ".", "--", "ready"}, &stdout, &stderr); code != exitFailure || !strings.Contains(stderr.String(), "the load: exit status 3; it names no address to wait for: set --ready") {
		t.Errorf("a load that fails: %d, %s", code, &stderr)
	}
	stderr.Reset()
	if code := run(t.Context(), []string{"try", "--load", "no-such-load -c 64", "./missing"}, &stdout, &stderr); code != exitFailure || !strings.Contains(stderr.String(), "--load: no-such-load is not found") {
		t.Errorf("a load that is not installed: %d, %s, want an error before the builds", code, &stderr)
	}
}

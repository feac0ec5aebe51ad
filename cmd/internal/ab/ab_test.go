// SPDX-License-Identifier: MIT

package ab

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const printed = `This is ApacheBench, Version 2.3 <$Revision: 1923142 $>

Server Software:        http-watch
Server Port:            18081

Concurrency Level:      10
Time taken for tests:   1.910 seconds
Complete requests:      30000
Failed requests:        0
Keep-Alive requests:    30000
Requests per second:    15706.75 [#/sec] (mean)
Time per request:       0.637 [ms] (mean)

Connection Times (ms)
              min  mean[+/-sd] median   max
Connect:        0    0   0.1      0       3
Processing:     0    1   0.2      1       6
Waiting:        0    0   0.2      0       6
Total:          0    1   0.3      1       7

Percentage of the requests served within a certain time (ms)
  50%      1
  99%      1
 100%      7 (longest request)
`

const printedExact = `Percentage served,Time in ms
0,0.114
50,0.618
66,0.660
75,0.691
80,0.713
90,0.807
95,0.957
98,1.128
99,1.325
`

func TestParse(t *testing.T) {
	r, err := parse([]byte(printed), []byte(printedExact))
	if err != nil {
		t.Fatal(err)
	}
	if r.Requests != 30000 || r.Failed != 0 || r.Elapsed != 1910*time.Millisecond ||
		r.Phases[processing] != (Times{0, 1, 0.2, 1, 6}) || r.Phases[total] != (Times{0, 1, 0.3, 1, 7}) ||
		!slices.Equal(r.Percentiles, []float64{0.618, 0.660, 0.691, 0.713, 0.807, 0.957, 1.128, 1.325, 7}) {
		t.Errorf("%+v", r)
	}
	m := r.Metrics(10)
	if m["mean_us"] < 636 || m["mean_us"] > 637 || m["p99_us"] != 1325 || m["max_us"] != 7000 || m["total_sd_ms"] != 0.3 ||
		len(m) != 1+4*5+len(Percents) {
		t.Errorf("%v", m)
	}
	failed, err := parse([]byte(printed+"Non-2xx responses: 3\n"), []byte(printedExact))
	if err != nil || (Job{Requests: 30000}).check(failed) == nil || (Job{Requests: 30000}).check(r) != nil {
		t.Errorf("failures are not seen: %+v, %v", failed, err)
	}
	for _, bad := range [][2]string{
		{"", printedExact},
		{printed, ""},
		{strings.Replace(printed, "Waiting:", "", 1), printedExact},
		{strings.Replace(printed, "1.910", "x", 1), printedExact},
		{strings.Replace(printed, "0.3 ", "x ", 1), printedExact},
		{strings.Replace(printed, "  7 (", "  x (", 1), printedExact},
		{strings.Replace(printed, "0.3      1       7", "0.3", 1), printedExact},
		{printed, strings.Replace(printedExact, "0.660", "x", 1)},
	} {
		if r, err := parse([]byte(bad[0]), []byte(bad[1])); err == nil {
			t.Errorf("%+v from\n%s%s", r, bad[0], bad[1])
		}
	}
}

func TestDescribe(t *testing.T) {
	ms := time.Millisecond
	if got := describe([]time.Duration{4 * ms, 1 * ms, 2 * ms, 3 * ms}); got != (Times{1, 2.5, got.SD, 2.5, 4}) || got.SD < 1.29 || got.SD > 1.292 {
		t.Errorf("%+v", got)
	}
	if got := describe([]time.Duration{2 * ms}); got != (Times{2, 2, 0, 2, 2}) {
		t.Errorf("%+v", got)
	}
	var spent []time.Duration
	for i := range 200 {
		spent = append(spent, time.Duration(200-i)*ms)
	}
	if got := percentiles(spent); got[0] != 101 || got[7] != 199 || got[8] != 200 {
		t.Errorf("%v", got)
	}
}

// site is a server of package net/http that counts connections.
func site(t *testing.T, h http.HandlerFunc) (addr string, conns *atomic.Int64) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	conns = new(atomic.Int64)
	s.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		conns.Add(1)
		return ctx
	}
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), conns
}

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello\n")) }

// ways are those to do a job: with the program, and without it.
func ways(t *testing.T) map[string]func(context.Context, Job) (Result, error) {
	ways := map[string]func(context.Context, Job) (Result, error){
		"own": func(ctx context.Context, j Job) (Result, error) { return j.Load(ctx) },
	}
	if program, err := Find(); err == nil {
		if v, err := Version(t.Context(), program); err != nil || !strings.HasPrefix(v, "ab 2.") {
			t.Errorf("version %q, %v", v, err)
		}
		ways["ab"] = func(ctx context.Context, j Job) (Result, error) { return j.Run(ctx, program) }
	}
	return ways
}

func TestRequests(t *testing.T) {
	for name, do := range ways(t) {
		for _, keep := range []bool{false, true} {
			addr, conns := site(t, hello)
			r, err := do(t.Context(), Job{Addr: addr, Requests: 200, Connections: 5, KeepAlive: keep})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			// Kept connections are up to five, of which a busy machine may leave some without work;
			// ab may connect once more than it asks.
			if n := conns.Load(); !keep && n < 200 || n < 1 || keep && n > 10 {
				t.Errorf("%s, kept %v: %d connections", name, keep, n)
			}
			p := r.Percentiles
			if r.Requests != 200 || r.Elapsed <= 0 || len(p) != len(Percents) || p[0] <= 0 || p[8] < p[7] || p[7] < p[0] ||
				r.Phases[total].Max < r.Phases[processing].Min {
				t.Errorf("%s, kept %v: %+v", name, keep, r)
			}
		}
	}
}

func TestBadAnswers(t *testing.T) {
	addr, _ := site(t, http.NotFound)
	for name, do := range ways(t) {
		if r, err := do(t.Context(), Job{Addr: addr, Requests: 5, Connections: 2}); err == nil {
			t.Errorf("%s: %+v of a page that is not there", name, r)
		}
		if r, err := do(t.Context(), Job{Addr: "127.0.0.1:1", Requests: 5, Connections: 2}); err == nil {
			t.Errorf("%s: %+v of no program", name, r)
		}
	}
}

func TestContext(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process group cannot be killed there")
	}
	asked, over := make(chan struct{}, 10), make(chan struct{})
	addr, _ := site(t, func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-over
	})
	t.Cleanup(func() { close(over) })
	for name, do := range ways(t) {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-asked
			cancel()
		}()
		if r, err := do(ctx, Job{Addr: addr, Requests: 5, Connections: 1}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

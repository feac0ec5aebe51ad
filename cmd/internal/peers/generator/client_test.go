// SPDX-License-Identifier: MIT

package generator

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

const abSaid = `
Concurrency Level:      10
Time taken for tests:   1.250 seconds
Complete requests:      50000
Failed requests:        0
Requests per second:    40000.00 [#/sec] (mean)
`

const abTable = "Percentage served,Time in ms\n0,0.045\n50,0.081\n99,1.250\n100,12.004\n"

func TestParseAB(t *testing.T) {
	res, err := parseAB(abSaid, abTable)
	if err != nil || res.Ops != 50000 || res.Elapsed != 1250*time.Millisecond ||
		res.P50 != 81*time.Microsecond || res.P99 != 1250*time.Microsecond || res.Max != 12004*time.Microsecond {
		t.Errorf("%+v, %v", res, err)
	}
	for wrong, says := range map[string]string{
		strings.Replace(abSaid, "Failed requests:        0", "Failed requests:        3", 1): "Failed requests",
		abSaid + "Non-2xx responses:      4\n":                                               "Non-2xx",
		"":                                                                                   "unreadable",
		strings.ReplaceAll(abSaid, "50000", "0"):                                             "no request",
	} {
		if _, err := parseAB(wrong, abTable); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

const wrkSaid = `Running 1s test @ http://127.0.0.1:1/
  1 threads and 10 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   308.35us  739.07us   9.13ms   92.14%
    Req/Sec    84.56k     7.52k   98.50k    81.82%
  Latency Distribution
     50%   93.00us
     75%  123.00us
     90%  633.00us
     99%    3.92ms
  92423 requests in 1.10s, 10.67MB read
Requests/sec:  84031.53
`

func TestParseWrk(t *testing.T) {
	res, err := parseWrk(wrkSaid)
	if err != nil || res.Ops != 92423 || res.Elapsed != 1100*time.Millisecond ||
		res.P50 != 93*time.Microsecond || res.P99 != 3920*time.Microsecond || res.Max != 9130*time.Microsecond {
		t.Errorf("%+v, %v", res, err)
	}
	for wrong, says := range map[string]string{
		wrkSaid + "  Non-2xx or 3xx responses: 7\n":                        "Non-2xx",
		wrkSaid + "  Socket errors: connect 0, read 3, write 0, timeout 0": "Socket errors",
		"": "unreadable",
		strings.Replace(wrkSaid, "99%", "98%", 1):     "latencies",
		strings.Replace(wrkSaid, "3.92ms", "3.92", 1): "latencies",
	} {
		if _, err := parseWrk(wrong); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

func TestArguments(t *testing.T) {
	j := Job{Client: NameAB, Connections: 7, Measure: 1100 * time.Millisecond, Addr: "127.0.0.1:1"}
	args := j.abArgs("f")
	if j.Window() != 2*time.Second || slices.Contains(args, "-k") || !strings.HasSuffix(strings.Join(args, " "), "-c 7 -e f -r -t 2 -n 2000000 http://127.0.0.1:1/") {
		t.Errorf("%v: %v", j.Window(), args)
	}
	j.Client, j.Requests = NameABKeep, 500
	if got := strings.Join(j.abArgs("f"), " "); got != "-q -c 7 -e f -n 500 -k http://127.0.0.1:1/" {
		t.Error(got)
	}
}

func TestClients(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }))
	defer srv.Close()
	for _, name := range []string{NameAB, NameABKeep, NameWrk} {
		path, err := Find(name)
		if errors.Is(err, ErrMissing) {
			t.Logf("not tried: %v", err)
			continue
		}
		if v, err := Version(t.Context(), name, path); err != nil || !strings.Contains(v, ".") || strings.Contains(v, "Copyright") {
			t.Errorf("version %q, %v", v, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		j := Job{Client: name, Path: path, Addr: srv.Listener.Addr().String(), Connections: 2, Measure: time.Second}
		if _, err := j.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: a cancelled context: %v", name, err)
		}
		if testing.Short() || name == NameAB { // its output is the same as that of ab -k
			continue
		}
		res, err := j.Run(t.Context())
		if err != nil || res.Ops == 0 || res.Elapsed < time.Second/2 || res.P50 > res.P99 || res.P99 > res.Max || res.Max == 0 {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
		j.Addr = "127.0.0.1:1"
		if _, err := j.Run(t.Context()); err == nil {
			t.Errorf("%s: no error without a server", name)
		}
	}
}

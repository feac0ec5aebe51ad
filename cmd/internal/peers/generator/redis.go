// SPDX-License-Identifier: MIT

package generator

import (
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/loadgen"
)

// redisRate is the usual number of answers in a second, and redisPiped that with several requests at
// once.
const redisRate, redisPiped = 80_000, 500_000

// redisRequests returns the number of requests.
func (j Job) redisRequests() int64 {
	rate := redisRate
	if j.Pipeline > 1 {
		rate = redisPiped
	}
	return max(int64(float64(rate)*j.Measure.Seconds()), int64(j.Connections*max(j.Pipeline, 1)))
}

func (j Job) redisArgs() ([]string, error) {
	host, port, err := net.SplitHostPort(j.Addr)
	if err != nil {
		return nil, err
	}
	return []string{
		"-h", host, "-p", port, "-c", strconv.Itoa(j.Connections), "-P", strconv.Itoa(cmp.Or(j.Pipeline, 1)),
		"-n", strconv.FormatInt(j.redisRequests(), 10), "-t", "get", "--csv",
	}, nil
}

// redisPatience is how long redis-benchmark may take longer than a usual server needs. It does not end
// by itself if there is no server.
const redisPatience = 30 * time.Second

func (j Job) redis(ctx context.Context) (res loadgen.Result, err error) {
	args, err := j.redisArgs()
	if err != nil {
		return res, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, redisPatience+10*j.Measure, fmt.Errorf("%s did not end", NameRedis))
	defer cancel()
	out, err := j.run(ctx, args...)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return res, err
	}
	return parseRedis(out, j.redisRequests())
}

// parseRedis parses the output of redis-benchmark for a number of requests: a heading, and a line with
// the name of the test, answers in a second, and latencies in milliseconds.
func parseRedis(out string, requests int64) (res loadgen.Result, err error) {
	const columns = 8 // test, rate, mean, smallest, 50 %, 95 %, 99 %, largest
	var line []string
	for _, l := range strings.Split(out, "\n") {
		if row, err := csv.NewReader(strings.NewReader(l)).Read(); err == nil && len(row) == columns && row[0] == "GET" {
			line = row
		}
	}
	if line == nil {
		return res, fmt.Errorf("%s: unreadable answer", NameRedis)
	}
	var figures [columns]float64
	for i, f := range line[1:] {
		if figures[i], err = strconv.ParseFloat(f, 64); err != nil || !(figures[i] >= 0 && figures[i] <= longest.Seconds()*1000) { // also NaN
			return res, fmt.Errorf("%s: %q", NameRedis, line)
		}
	}
	res.By, res.Ops = NameRedis, requests
	if res.Elapsed = seconds(float64(requests) / figures[0]); res.Elapsed <= 0 || res.Elapsed > longest {
		return res, fmt.Errorf("%s: no request was answered", NameRedis)
	}
	res.P50, res.P99, res.Max = seconds(figures[3]/1000), seconds(figures[5]/1000), seconds(figures[6]/1000)
	return res, nil
}

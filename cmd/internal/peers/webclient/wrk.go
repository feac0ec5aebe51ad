// SPDX-License-Identifier: MIT

package webclient

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/loadgen"
)

func (j Job) wrk(ctx context.Context) (loadgen.Result, error) {
	out, err := j.run(ctx, "-t", "1", "-c", strconv.Itoa(j.Connections), "-d", j.Window().String(), "--latency", j.url())
	if err != nil {
		return loadgen.Result{}, err
	}
	return parseWrk(out)
}

var (
	wrkTotal  = regexp.MustCompile(`(?m)^\s*(\d+) requests in (\d+(?:\.\d+)?(?:us|ms|s|m))\b`)
	wrkFailed = regexp.MustCompile(`(?m)^\s*(Non-2xx or 3xx responses: .*|Socket errors: .*)$`)
	wrkMax    = regexp.MustCompile(`(?m)^\s*Latency\s+\S+\s+\S+\s+(\S+)`)
	wrkHalf   = regexp.MustCompile(`(?m)^\s*50%\s+(\S+)`)
	wrkLast   = regexp.MustCompile(`(?m)^\s*99%\s+(\S+)`)
)

// parseWrk reads what wrk printed.
func parseWrk(out string) (res loadgen.Result, err error) {
	if m := wrkFailed.FindStringSubmatch(out); m != nil {
		return res, fmt.Errorf("wrk: %s", m[1])
	}
	total := wrkTotal.FindStringSubmatch(out)
	if total == nil {
		return res, errors.New("wrk: unreadable answer")
	}
	res.By = NameWrk
	res.Ops, _ = strconv.ParseInt(total[1], 10, 64)
	if res.Elapsed, err = time.ParseDuration(total[2]); err != nil || res.Ops <= 0 || res.Elapsed <= 0 {
		return res, errors.Join(errors.New("wrk: no request was answered"), err)
	}
	for _, f := range []struct {
		where *regexp.Regexp
		into  *time.Duration
	}{{wrkHalf, &res.P50}, {wrkLast, &res.P99}, {wrkMax, &res.Max}} {
		m := f.where.FindStringSubmatch(out)
		if m == nil {
			return res, errors.New("wrk: unreadable latencies")
		}
		if *f.into, err = time.ParseDuration(m[1]); err != nil {
			return res, fmt.Errorf("wrk: latencies: %w", err)
		}
	}
	return res, nil
}

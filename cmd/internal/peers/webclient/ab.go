// SPDX-License-Identifier: MIT

package webclient

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/loadgen"
)

// ab runs ApacheBench. The percentiles on its standard output are whole milliseconds; in the file
// they are microseconds.
func (j Job) ab(ctx context.Context) (res loadgen.Result, err error) {
	dir, err := os.MkdirTemp("", "ringside-ab-*")
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	table := filepath.Join(dir, "percentiles.csv")
	out, err := j.run(ctx, j.abArgs(table)...)
	if err != nil {
		return res, err
	}
	b, err := os.ReadFile(table)
	if err != nil {
		return res, fmt.Errorf("%s: %w", j.Client, err)
	}
	return parseAB(out, string(b))
}

// abMost is more requests than a server answers in a second.
const abMost = 1_000_000

func (j Job) abArgs(table string) []string {
	seconds := int(j.Window() / time.Second)
	args := []string{
		"-q", "-r", "-t", strconv.Itoa(seconds), "-n", strconv.Itoa(abMost * seconds),
		"-c", strconv.Itoa(j.Connections), "-e", table,
	}
	if j.Client == NameABKeep {
		args = append(args, "-k")
	}
	return append(args, j.url())
}

var (
	abComplete = regexp.MustCompile(`(?m)^Complete requests:\s+(\d+)$`)
	abFailed   = regexp.MustCompile(`(?m)^(?:Failed requests|Non-2xx responses):\s+([1-9]\d*)$`)
	abTook     = regexp.MustCompile(`(?m)^Time taken for tests:\s+([\d.]+) seconds$`)
)

// longest bounds what is taken for a time.
const longest = 24 * time.Hour

// parseAB reads what ab printed, and its table of percentiles.
func parseAB(out, table string) (res loadgen.Result, err error) {
	if m := abFailed.FindString(out); m != "" {
		return res, fmt.Errorf("ab: %s", m)
	}
	complete, took := abComplete.FindStringSubmatch(out), abTook.FindStringSubmatch(out)
	if complete == nil || took == nil {
		return res, errors.New("ab: unreadable answer")
	}
	res.By = NameAB
	res.Ops, _ = strconv.ParseInt(complete[1], 10, 64)
	seconds, _ := strconv.ParseFloat(took[1], 64)
	res.Elapsed = time.Duration(seconds * float64(time.Second))
	if res.Ops <= 0 || res.Elapsed <= 0 {
		return res, errors.New("ab: no request was answered")
	}
	lines := csv.NewReader(strings.NewReader(table))
	lines.FieldsPerRecord = 2
	rows, err := lines.ReadAll()
	if err != nil {
		return res, fmt.Errorf("ab: percentiles: %w", err)
	}
	for _, row := range rows {
		millis, err := strconv.ParseFloat(row[1], 64)
		if err != nil {
			continue // the title
		}
		if !(millis >= 0 && millis <= longest.Seconds()*1000) { // also what is not a number
			return res, fmt.Errorf("ab: percentiles: %q", row[1])
		}
		took := time.Duration(millis * float64(time.Millisecond))
		switch row[0] {
		case "50":
			res.P50 = took
		case "99":
			res.P99 = took
		case "100":
			res.Max = took
		}
	}
	return res, nil
}

// SPDX-License-Identifier: MIT

// Package fio runs the fio program on the same file as the engines, as a baseline written in C.
package fio

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// These are the names of the engines in tables and result files. All read with O_DIRECT through
// io_uring from one thread.
const (
	// Name is fio with its default ring.
	Name = "fio"
	// NameFixed is fio with the file and the buffers registered in the kernel.
	NameFixed = "fio-fixed"
	// NameBatched is fio that repeatedly submits a full batch of reads and waits for all of them.
	NameBatched = "fio-batched"
)

// ErrMissing is returned by Find when fio is not installed.
var ErrMissing = errors.New("fio is not installed (Debian: apt-get install fio)")

// Find returns the path of the program.
func Find() (string, error) {
	path, err := exec.LookPath(Name)
	if err != nil {
		return "", ErrMissing
	}
	return path, nil
}

// Version returns the program's version, such as "fio-3.33".
func Version(ctx context.Context, program string) (string, error) {
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("get the version of fio: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// RandRead is one round of random reads.
type RandRead struct {
	// Engine is one of the names above. Empty means [Name].
	Engine string
	// Path is the file. Span is the number of bytes, from its start, that are read.
	Path string
	Span int64
	// Block is the size of one read in bytes. Depth is the number of reads in flight.
	Block, Depth int
	// Warm is the length of the warm-up. Measure is the length of the window.
	Warm, Measure time.Duration
	Seed          uint64
}

// args returns the arguments. fio never writes, because the file may be the user's.
func (r RandRead) args() []string {
	args := []string{
		"--name=randread", "--readonly", "--rw=randread", "--ioengine=io_uring", "--direct=1",
		"--filename=" + escape(r.Path), fmt.Sprintf("--size=%d", r.Span),
		fmt.Sprintf("--bs=%d", r.Block), fmt.Sprintf("--iodepth=%d", r.Depth),
		"--numjobs=1", "--norandommap", "--randrepeat=1", fmt.Sprintf("--randseed=%d", r.Seed),
		"--time_based", fmt.Sprintf("--ramp_time=%dms", r.Warm.Milliseconds()),
		fmt.Sprintf("--runtime=%dms", max(r.Measure.Milliseconds(), 1)),
		"--percentile_list=50:99", "--output-format=json",
	}
	switch r.Engine {
	case NameFixed:
		args = append(args, "--registerfiles", "--fixedbufs")
	case NameBatched:
		for _, option := range []string{"iodepth_batch_submit", "iodepth_batch_complete_min", "iodepth_batch_complete_max"} {
			args = append(args, fmt.Sprintf("--%s=%d", option, r.Depth))
		}
	}
	return args
}

// escape escapes colons, which separate file names.
func escape(path string) string { return strings.ReplaceAll(path, ":", `\:`) }

// Run runs one round. When ctx ends fio is killed, and the error matches that of the context.
func (r RandRead) Run(ctx context.Context, program string) (measure.Sample, error) {
	cmd := exec.CommandContext(ctx, program, r.args()...)
	cmd.Dir = os.TempDir()
	out, err := measure.Output(ctx, cmd, complaint)
	if err != nil {
		return measure.Sample{}, err
	}
	return parse(out, r.Block)
}

// complaint returns fio's messages without JSON, on one line. The output of a failed job is a
// document of hundreds of lines. The messages precede it or are on standard error.
func complaint(stderr, stdout string) string {
	before, _, _ := strings.Cut("\n"+stdout, "\n{")
	var lines []string
	for line := range strings.Lines(stderr + "\n" + before) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return "it gave no reason"
	}
	return strings.Join(lines, "; ")
}

// output is the used part of fio's JSON.
type output struct {
	Jobs []job `json:"jobs"`
}

type job struct {
	Error  int     `json:"error"`
	UsrCPU float64 `json:"usr_cpu"`
	SysCPU float64 `json:"sys_cpu"`
	Read   struct {
		TotalIOs int64   `json:"total_ios"`
		IOPS     float64 `json:"iops"`
		Lat      struct {
			Max float64 `json:"max"`
		} `json:"lat_ns"`
		CLat struct {
			Percentile map[string]float64 `json:"percentile"`
		} `json:"clat_ns"`
	} `json:"read"`
}

// plausible reports whether the numbers are possible, so that computing durations from them does
// not overflow.
func (j *job) plausible() bool {
	const day = 24 * time.Hour
	times := []float64{j.Read.Lat.Max, j.UsrCPU, j.SysCPU, float64(j.Read.TotalIOs) / j.Read.IOPS * float64(time.Second)}
	for _, v := range j.Read.CLat.Percentile {
		times = append(times, v)
	}
	for _, v := range times {
		if v < 0 || v > float64(day) {
			return false
		}
	}
	return j.Read.TotalIOs <= 1<<40
}

// parse parses fio's output. The CPU share that fio reports is that of its one job thread.
func parse(b []byte, block int) (measure.Sample, error) {
	// Warnings may precede the document.
	if at := bytes.IndexByte(b, '{'); at > 0 {
		b = b[at:]
	}
	var o output
	if err := json.Unmarshal(b, &o); err != nil {
		return measure.Sample{}, fmt.Errorf("fio: unreadable answer: %w", err)
	}
	if len(o.Jobs) != 1 || o.Jobs[0].Error != 0 || o.Jobs[0].Read.TotalIOs == 0 || o.Jobs[0].Read.IOPS == 0 {
		return measure.Sample{}, errors.New("fio: the job failed or read nothing")
	}
	job := o.Jobs[0]
	if !job.plausible() {
		return measure.Sample{}, errors.New("fio: impossible numbers")
	}
	ops := job.Read.TotalIOs
	elapsed := time.Duration(float64(ops) / job.Read.IOPS * float64(time.Second))
	cpu := time.Duration((job.UsrCPU + job.SysCPU) / 100 * float64(elapsed))
	return measure.Sample{
		Ops: ops, Bytes: ops * int64(block), Elapsed: elapsed, CPU: &cpu,
		P50: time.Duration(job.Read.CLat.Percentile["50.000000"]),
		P99: time.Duration(job.Read.CLat.Percentile["99.000000"]),
		Max: time.Duration(job.Read.Lat.Max),
	}, nil
}

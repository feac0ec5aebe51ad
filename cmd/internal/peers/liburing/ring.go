// SPDX-License-Identifier: MIT

package liburing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/workload"
	"github.com/ringside-io/ringside/uring"
)

// Round runs a job of the workload "nop" or "read". With a window of zero length it runs a single
// chunk. The sample's Backend is the library and compiler. Its Reason is empty if the ring has the
// same flags as ours, and otherwise describes the difference. When ctx ends the program is killed,
// and the error matches that of the context.
func (p *Program) Round(ctx context.Context, job workload.Job) (measure.Sample, error) {
	work, ok := job.Work.(workload.RingWork)
	if !ok {
		return measure.Sample{}, fmt.Errorf("unknown workload %s/%s for engine %s", job.Suite, job.Workload, Name)
	}
	out, err := run(ctx, p.dir, p.path, args(job)...)
	if err != nil {
		return measure.Sample{}, err
	}
	a, err := parse(out)
	if err != nil {
		return measure.Sample{}, err
	}
	s := measure.Sample{Ops: a.Ops, Elapsed: a.Elapsed, CPU: a.CPU, Backend: p.about(a)}
	if _, reads := work.(*workload.Reads); reads {
		s.Bytes = a.Ops * workload.ReadsBlock
	}
	s.Reason, err = a.difference(work.Options())
	return s, err
}

func args(job workload.Job) []string {
	window := []string{seconds(job.Warm), seconds(job.Measure)}
	if r, ok := job.Work.(*workload.Reads); ok {
		direct := "0"
		if r.Direct {
			direct = "1"
		}
		return append([]string{
			"read", r.Ring, strconv.Itoa(r.Depth), strconv.Itoa(r.Ops()), r.Path,
			strconv.FormatInt(r.Span, 10), strconv.FormatUint(r.Content, 10), strconv.FormatUint(r.Seed, 10), direct,
		}, window...)
	}
	n := job.Work.(*workload.Nop)
	return append([]string{"nop", n.Ring, strconv.Itoa(n.Batch), strconv.Itoa(n.Rounds()), strconv.FormatUint(n.First, 10)}, window...)
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 9, 64) }

func (p *Program) about(a answer) string {
	name := Name
	if p.version != "" {
		name += " " + p.version
	}
	if a.Compiler != "" {
		name += ", " + a.Compiler + " " + optimize
	}
	return name
}

// answer is the output of the program.
type answer struct {
	Ops        int64             `json:"ops"`
	Elapsed    time.Duration     `json:"elapsed_ns"`
	CPU        *time.Duration    `json:"cpu_ns"`
	SetupFlags *uring.SetupFlags `json:"setup_flags"`
	Compiler   string            `json:"compiler"`
}

func parse(b []byte) (answer, error) {
	var a answer
	if err := json.Unmarshal(b, &a); err != nil {
		return answer{}, fmt.Errorf("answer of the peer: %w", err)
	}
	if a.Ops <= 0 || a.Elapsed <= 0 || a.CPU == nil || *a.CPU < 0 || a.SetupFlags == nil {
		return answer{}, errors.New("the peer's answer is incomplete")
	}
	return a, nil
}

// difference compares the flags of the peer's ring with ours. Newer versions of the library add
// some of their own.
func (a answer) difference(ours *uring.Options) (string, error) {
	flags, err := ours.SetupFlags()
	if err != nil || *a.SetupFlags == flags {
		return "", err
	}
	return fmt.Sprintf("%s opened its ring with other flags: %#x, not %#x", Name, *a.SetupFlags, flags), nil
}

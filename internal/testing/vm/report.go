// SPDX-License-Identifier: MIT

package vm

import (
	"errors"
	"fmt"
	"time"

	"github.com/ringside-io/ringside/internal/testing/vm/wire"
)

// maxOutput bounds the kept output of one job.
const maxOutput = 16 << 20

// Result is how one job ended.
type Result struct {
	// Exit is the exit status; -1 if the program has none.
	Exit int
	// Note is the reason why there is no exit status: killed by a signal or by
	// the timeout, not started, or the machine stopped.
	Note string
	// Took is the run time by the guest's clock.
	Took time.Duration
	// Output is standard output and standard error, up to 16 MiB.
	Output []byte
}

// OK reports whether the program ended by itself with status 0.
func (r Result) OK() bool { return r.Exit == 0 && r.Note == "" }

// Report is the result of a run.
type Report struct {
	// Guest describes the machine.
	Guest wire.Guest
	// Boots is how often the machine was started: more than once if the
	// emulator crashed it.
	Boots int
	// Boot is the time from the last start of the emulator to the guest's first
	// output.
	Boot time.Duration
	// Results has one entry for each job of the Config.
	Results []Result
	// Console is the kernel's log, warnings and worse, of the last boot.
	Console []byte
}

// collector builds a Report from the events.
type collector struct {
	cfg    Config
	report *Report
	next   int // the first job that has not ended

	// Of the current boot:
	began  time.Time
	onBoot func()
	job    int // index of the running job, -1 between jobs
	booted bool
	done   bool
	fatal  string
}

func newCollector(cfg Config) *collector {
	c := &collector{cfg: cfg, report: &Report{}}
	for range cfg.Jobs {
		c.report.Results = append(c.report.Results, Result{Exit: -1, Note: "not run"})
	}
	return c
}

// begin prepares for the events of a new boot; onBoot is called by the first.
func (c *collector) begin(onBoot func()) {
	c.began, c.onBoot = time.Now(), onBoot
	c.job, c.booted, c.done, c.fatal = -1, false, false, ""
	c.report.Boots++
}

func (c *collector) event(e wire.Event) {
	switch e.Kind {
	case wire.Boot:
		c.boot(e)
	case wire.Start:
		if r := c.result(e.Job); r != nil {
			*r = Result{Exit: -1, Note: "the machine stopped while this ran"}
			c.job = e.Job
		}
	case wire.End:
		if r := c.result(e.Job); r != nil {
			r.Exit, r.Note, r.Took = e.Exit, e.Note, e.Took
			c.next = e.Job + 1
			c.cfg.Ended(e.Job, *r)
		}
		c.job = -1
	case wire.Done:
		c.done = true
	case wire.Fatal:
		c.fatal = e.Note
	}
}

func (c *collector) boot(e wire.Event) {
	if e.Guest != nil {
		c.report.Guest = *e.Guest
	}
	c.booted = true
	c.report.Boot = time.Since(c.began)
	c.onBoot()
	c.cfg.Booted(c.report)
}

func (c *collector) result(job int) *Result {
	if job < 0 || job >= len(c.report.Results) {
		return nil
	}
	return &c.report.Results[job]
}

func (c *collector) output(p []byte) {
	r := c.result(c.job)
	if r == nil {
		return
	}
	c.cfg.Output(c.job, p)
	if room := maxOutput - len(r.Output); room > 0 {
		r.Output = append(r.Output, p[:min(room, len(p))]...)
		if room <= len(p) {
			r.Output = append(r.Output, "\n[output cut here]\n"...)
		}
	}
}

// err returns the reason why a boot is incomplete, nil if the guest completed.
func (c *collector) err() error {
	switch {
	case c.fatal != "":
		return fmt.Errorf("the guest gave up: %s", c.fatal)
	case !c.booted:
		return errors.New("the kernel did not come up")
	case !c.done:
		return errors.New("the machine stopped early")
	}
	return nil
}

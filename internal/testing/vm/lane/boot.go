// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ringside-io/ringside/internal/testing/vm"
	"github.com/ringside-io/ringside/internal/testing/vm/wire"
)

// boot runs the cargo on one kernel and prints the results. An error concerns the
// machine; failing tests are counted.
func (l *lane) boot(ctx context.Context, tools vm.Tools, k vm.Kernel, c *cargo) error {
	cfg := vm.Config{
		Arch:    l.opt.arch,
		Kernel:  k.Image,
		Init:    c.init,
		Tools:   tools,
		Accel:   l.opt.accel,
		Sysctls: l.opt.sysctls,
		Modules: k.Modules,
		Files:   c.files,
		Jobs:    l.jobs(c, k.Version),
	}
	live := l.opt.verbose || l.opt.main != ""
	if live {
		cfg.Output = func(_ int, p []byte) { l.out.Write(p) }
	}
	ended := make([]bool, len(c.jobs))
	cfg.Booted = func(r *vm.Report) { l.printGuest(k, r) }
	cfg.Ended = func(i int, r vm.Result) {
		ended[i] = true
		l.printResult(c.names[i], r, live)
	}
	report, err := vm.Run(ctx, cfg)
	if report == nil {
		return err
	}
	failed := 0
	for i, r := range report.Results {
		if !ended[i] {
			l.printResult(c.names[i], r, live)
		}
		if !r.OK() {
			failed++
		}
	}
	l.printKernelLog(report, err != nil)
	passed := len(report.Results) - failed
	l.passed, l.failed = l.passed+passed, l.failed+failed
	if l.opt.main == "" {
		fmt.Fprintf(l.out, "kernel lane %s: %d passed, %d failed\n", l.opt.machine(k.Version), passed, failed)
	}
	if err != nil {
		return fmt.Errorf("kernel lane %s: %w", l.opt.machine(k.Version), err)
	}
	return nil
}

// jobs returns the jobs with the parts that depend on the kernel and the options.
func (l *lane) jobs(c *cargo, version string) []wire.Job {
	env := []string{"RINGSIDE_LANE=" + version, "RINGSIDE_MUST=io_uring"}
	if l.opt.uid != 0 {
		env = append(env, "HOME=/tmp", "USER=user")
	}
	env = append(env, l.opt.env...)
	jobs := slices.Clone(c.jobs)
	for i := range jobs {
		jobs[i].Env = env
		jobs[i].UID, jobs[i].GID = uint32(l.opt.uid), uint32(l.opt.uid)
	}
	return jobs
}

func (l *lane) printGuest(k vm.Kernel, r *vm.Report) {
	fmt.Fprintf(l.out, "kernel lane %s: Linux %s %s, %s, %d CPUs, booted in %.1fs", l.opt.machine(k.Version),
		r.Guest.Release, r.Guest.Machine, l.opt.accel, r.Guest.CPUs, r.Boot.Seconds())
	for _, m := range r.Guest.Mounts {
		direct := "no O_DIRECT"
		if m.Direct {
			direct = "O_DIRECT"
		}
		fmt.Fprintf(l.out, ", %s %s with %s", m.Path, m.Type, direct)
	}
	fmt.Fprintln(l.out)
	if r.Boots > 1 {
		fmt.Fprintf(l.out, "note: boot number %d; the emulator crashed the kernel before\n", r.Boots)
	}
	for _, note := range r.Guest.Notes {
		fmt.Fprintf(l.out, "note: %s\n", note)
	}
}

func (l *lane) printResult(name string, r vm.Result, live bool) {
	if l.opt.main != "" && r.OK() {
		return
	}
	took := r.Took.Round(time.Millisecond).Seconds()
	if r.OK() {
		fmt.Fprintf(l.out, "ok  \t%s\t%.3fs%s\n", name, took, remarks(r.Output))
		return
	}
	if !live {
		l.out.Write(failures(r.Output))
	}
	why := r.Note
	if why == "" {
		why = fmt.Sprintf("exit status %d", r.Exit)
	}
	fmt.Fprintf(l.out, "FAIL\t%s\t%.3fs\t%s\n", name, took, why)
}

// remarks counts the skips in verbose test output, and names the tests that run in a
// virtual machine only (ringtest.NeedMachine).
func remarks(out []byte) string {
	skips, test := 0, ""
	var all, here []string
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		switch name, ok := strings.CutPrefix(line, "=== RUN "); {
		case ok:
			test = strings.TrimSpace(name)
		case strings.HasPrefix(line, "--- SKIP"):
			skips++
		case strings.HasSuffix(line, ": only in a virtual machine"):
			here = append(here, test)
		}
	}
	if skips > 0 {
		all = append(all, fmt.Sprintf("%d skipped", skips))
	}
	if len(here) > 0 {
		all = append(all, "only here: "+strings.Join(here, ", "))
	}
	if len(all) == 0 {
		return ""
	}
	return "\t(" + strings.Join(all, "; ") + ")"
}

// failures removes from verbose test output the lines that only report that a test
// runs or passed.
func failures(out []byte) []byte {
	var keep []byte
	for line := range bytes.Lines(out) {
		s := strings.TrimLeft(string(line), " ")
		if strings.HasPrefix(s, "=== ") || strings.HasPrefix(s, "--- PASS") {
			continue
		}
		keep = append(keep, line...)
	}
	if n := len(keep); n > 0 && keep[n-1] != '\n' {
		keep = append(keep, '\n')
	}
	return keep
}

// printKernelLog prints the end of the kernel's log when the machine died, and
// otherwise only if it has signs of a kernel bug.
func (l *lane) printKernelLog(r *vm.Report, died bool) {
	if !died && !complains(r.Console) {
		return
	}
	lines := bytes.SplitAfter(r.Console, []byte("\n"))
	lines = lines[max(0, len(lines)-100):]
	fmt.Fprintf(l.out, "kernel log:\n%s\n", bytes.TrimRight(bytes.Join(lines, nil), "\n"))
}

// complains reports whether the log has signs of a kernel bug.
func complains(console []byte) bool {
	for _, mark := range []string{"BUG:", "Oops", "WARNING: CPU", "INFO: task ", "Kernel panic", "refcount_t:"} {
		if bytes.Contains(console, []byte(mark)) {
			return true
		}
	}
	return false
}

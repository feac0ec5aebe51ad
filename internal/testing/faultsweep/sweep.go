// SPDX-License-Identifier: MIT

//go:build linux

package faultsweep

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Operation is one row of a sweep.
type Operation struct {
	Name string
	// Run sets up, arms the trial, runs the operation, disarms the trial, checks the
	// result, and frees what it has set up, whatever has failed.
	Run func(t *Trial)
	// Only lists the kinds of answers that fail; nil means all kinds in [Choices].
	// Opened leaves out the kinds in [Opening].
	Only   []string
	Opened bool
	// Instead replaces the choices for a kind.
	Instead map[string][]Choice
	// Most limits how many answers of a kind fail in turn; 0 means all.
	Most int
	// Sim: the rings that Run puts below its reactors with [Trial.Rings] are
	// simulated, and the faults are theirs.
	Sim bool
	// Syscalls: [CheckSimulated] runs the operation too. All rings that are opened
	// while the trial is armed run on simulated system calls, and all their answers
	// fail, regardless of Only. Package kernelsim lists what such rings support.
	Syscalls bool
	// Covers are the exported functions and methods that Run calls under faults,
	// separated by spaces: see [API].
	Covers string

	atSyscalls bool // this run is the one for Syscalls
}

// Options limit a sweep.
type Options struct {
	Brief    bool          // the first answer of each kind, once
	All      bool          // regardless of Most and Opened
	Long     bool          // more than the first answer of each kind
	Patience time.Duration // for a run, 0 for [Patience]
}

// Report is the result of a sweep.
type Report struct {
	Operations, Runs, Faults int
	Problems                 []string
	Lines                    []string // a table, a line for each operation
}

// String returns the report in one line.
func (r *Report) String() string {
	return fmt.Sprintf("sweep: %d operations, %d runs, %d faults", r.Operations, r.Runs, r.Faults)
}

// most limits the problems of a report.
const most = 10

// Sweep runs each operation with each fault. It stops after a run that hangs or leaks, and
// after too many problems.
func Sweep(ops []Operation, o Options) *Report {
	if o.Patience == 0 {
		o.Patience = Patience
	}
	r := &Report{}
	for i := range ops {
		r.Operations++
		if !r.sweep(&ops[i], o) {
			break
		}
	}
	return r
}

// sweep sweeps one operation and reports whether the sweep should continue.
func (r *Report) sweep(op *Operation, o Options) bool {
	runs, faults, begin := r.Runs, r.Faults, time.Now()
	// During the first run the runtime opens what it keeps, such as its poller.
	before := now()
	if ok := r.warm(op, o); !ok {
		return false
	}
	before.descriptors = descriptors()
	seen, ok := r.run(op, o, plan{}, before)
	if !ok {
		return false
	}
	var kinds []string
	for kind := range seen {
		if _, ok := op.choices(kind); !ok {
			r.Problems = append(r.Problems, fmt.Sprintf("%s: no faults are listed for %q", op.Name, kind))
		}
	}
	for _, p := range append(op.plans(seen, o), op.storms(o)...) {
		if _, ok := r.run(op, o, p, before); !ok || len(r.Problems) >= most {
			return false
		}
	}
	for kind, n := range seen {
		kinds = append(kinds, fmt.Sprintf("%s %d", kind, n))
	}
	slices.Sort(kinds)
	r.Lines = append(r.Lines, fmt.Sprintf("%-28s %5d runs %6d faults %6.0f ms   %s", op.Name, r.Runs-runs, r.Faults-faults,
		time.Since(begin).Seconds()*1000, strings.Join(kinds, ", ")))
	return true
}

// mostAtSyscalls limits how many answers of a kind fail in turn on simulated system calls,
// because the same answers of the real kernel have failed already. More io_uring_enters
// fail, because different operations are in flight each time.
const mostAtSyscalls, entersAtSyscalls = 2, 6

// mostBriefly and stormsBriefly limit a sweep that is not long. The rest is for other answers
// of the same kinds.
const mostBriefly, stormsBriefly = 1, 1

// warm runs an operation without faults, first on the kernel's rings, so that package
// features probes the real kernel. Of the run, only goroutines must end.
func (r *Report) warm(op *Operation, o Options) bool {
	if op.atSyscalls {
		plain := *op
		plain.atSyscalls = false
		if !r.warm(&plain, o) {
			return false
		}
	}
	_, ok := r.run(op, o, plan{}, state{1 << 30, runtime.NumGoroutine()})
	return ok
}

// plans returns the faults to try, given the number of answers of each kind.
func (op *Operation) plans(seen map[string]int, o Options) (ps []plan) {
	kinds := make([]string, 0, len(seen))
	for kind := range seen {
		if (op.Only == nil || op.atSyscalls || slices.Contains(op.Only, kind)) && (!op.Opened || o.All || !slices.Contains(Opening, kind)) {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	for _, kind := range kinds {
		choices, _ := op.choices(kind)
		n, ways := seen[kind], []bool{false, true}
		switch {
		case o.All:
		case op.atSyscalls && kind == "io_uring_enter":
			n = min(n, entersAtSyscalls)
		case op.atSyscalls:
			n = min(n, mostAtSyscalls, cmp.Or(op.Most, n))
		case op.Most > 0:
			n = min(n, op.Most)
		}
		if !o.Long && !o.All {
			n = min(n, mostBriefly) // all choices fail once, and many times in a row
		}
		if o.Brief {
			n, ways = 1, ways[:1]
		}
		for nth := 1; nth <= n; nth++ {
			for _, c := range choices {
				for _, again := range ways {
					if again && nth > 1 && !o.All && (op.atSyscalls || !o.Long) {
						continue
					}
					ps = append(ps, plan{kind: kind, nth: nth, choice: c, times: times(kind, c, again)})
				}
			}
		}
	}
	if op.atSyscalls && !o.Long && !o.All {
		return fewerPlans(ps)
	}
	return ps
}

// fewerPlans leaves out every second plan but those of io_uring_enter, the first or the second at
// random. The others are those whose answers have failed on the real kernel.
func fewerPlans(ps []plan) []plan {
	n := rand.IntN(2)
	return slices.DeleteFunc(ps, func(p plan) bool {
		if p.kind == "io_uring_enter" {
			return false
		}
		n++
		return n%2 == 0
	})
}

// stormsAtSyscalls is the number of runs in which answers of all kinds fail at random, in
// ways that pass.
const stormsAtSyscalls = 4

// storms returns the plans of those runs.
func (op *Operation) storms(o Options) (ps []plan) {
	n := stormsAtSyscalls
	switch {
	case !op.atSyscalls:
		return nil
	case o.All:
		n *= 50
	case !o.Long:
		n = stormsBriefly
	}
	for seed := range n {
		ps = append(ps, plan{seed: uint64(seed + 1), choice: Choice{Passing: true}})
	}
	return ps
}

// passing returns the choices for a kind after which the operation must succeed, however
// often they happen.
func (op *Operation) passing(kind string) []Choice {
	cs, _ := op.choices(kind)
	return slices.DeleteFunc(slices.Clone(cs), func(c Choice) bool { return !c.Passing || c.Once })
}

// choices returns the choices for a kind, and whether the kind is listed.
func (op *Operation) choices(kind string) ([]Choice, bool) {
	if cs, ok := op.Instead[kind]; ok {
		return cs, true
	}
	if op.Sim {
		cs, ok := Simulated[kind]
		return cs, ok
	}
	if op.atSyscalls {
		cs, ok := AtSyscalls[kind]
		return cs, ok
	}
	cs, ok := Choices[kind]
	return cs, ok
}

// times returns how many calls fail: one; several in a row if the caller is to retry each;
// otherwise all. Only a few accepts, registrations and cancellations fail, because their
// retries wait longer each time.
func times(kind string, c Choice, again bool) int {
	switch {
	case !again:
		return 1
	case c.Passing && strings.EqualFold(kind, "accept"), kind == "epoll_ctl add", c.Lost:
		return 2
	case c.Passing && kind == "ASYNC_CANCEL":
		return 6
	case c.Passing && !c.Short && !c.Late && !c.Stale && !c.Split:
		return often
	}
	return 1 << 30
}

// run runs an operation and checks what it leaves.
func (r *Report) run(op *Operation, o Options, p plan, before state) (seen map[string]int, ok bool) {
	t := &Trial{in: newInjector(), patience: o.Patience}
	t.in.simulated, t.in.atSyscalls, t.in.storms = op.Sim, op.atSyscalls, op.passing
	if err := t.in.begin(p); err != nil {
		r.Problems = append(r.Problems, err.Error())
		return nil, false
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		op.Run(t)
	}()
	ok = true
	select {
	case <-done:
	case <-time.After(o.Patience):
		buf := make([]byte, 1<<20)
		t.Errorf("hangs:\n%s", buf[:runtime.Stack(buf, true)])
		t.Disarm()
		t.in.release()
		select {
		case <-done:
		case <-time.After(o.Patience):
			ok = false
		}
	}
	t.in.end()
	if ok {
		t.endRings()
	}
	r.Runs++
	r.Faults += t.in.fired()
	if ok {
		ok = before.compare(t)
	}
	for _, problem := range t.problems {
		r.Problems = append(r.Problems, fmt.Sprintf("%s, %s: %s", op.Name, p, problem))
	}
	return t.in.seen, ok
}

// String describes the fault.
func (p plan) String() string {
	switch {
	case p.seed != 0:
		return fmt.Sprintf("storm %d", p.seed)
	case p.times == 0:
		return "no fault"
	case p.times == 1:
		return fmt.Sprintf("%s number %d %v", p.kind, p.nth, p.choice)
	}
	return fmt.Sprintf("%s from number %d on %v", p.kind, p.nth, p.choice)
}

// state counts the resources of the process.
type state struct{ descriptors, goroutines int }

func now() state { return state{descriptors(), runtime.NumGoroutine()} }

func descriptors() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return len(entries)
}

// compare waits until there are no more resources than before, and reports whether that
// happened.
func (s state) compare(t *Trial) (ok bool) {
	ok = true
	if !await(t.patience, func() bool { return runtime.NumGoroutine() <= s.goroutines }) {
		buf := make([]byte, 1<<20)
		t.Errorf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), s.goroutines, buf[:runtime.Stack(buf, true)])
		ok = false
	}
	if !await(t.patience, func() bool { return descriptors() <= s.descriptors }) {
		t.Errorf("%d descriptors, %d before", descriptors(), s.descriptors)
		ok = false
	}
	return ok
}

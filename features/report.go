// SPDX-License-Identifier: MIT

package features

import (
	"errors"
	"runtime"

	"github.com/ringside-io/ringside/internal/probe"
	"github.com/ringside-io/ringside/uring"
)

func init() { probe.Collect = kernel.collect }

// collect runs every probe and reports the results.
func (h *host) collect() probe.Report {
	r := probe.Report{OS: h.os, Arch: runtime.GOARCH, LSMs: []string{}, Notes: []probe.Note{},
		Packages: []probe.Package{}}
	if h.os == "linux" {
		addEnvironment(&r, h.environment())
	}
	r.Override = h.getenv(EnvBackend)
	var err error
	if err = h.haveIOURing(); err == nil {
		r.Usable = true
	}
	r.Answer, r.Reason, r.Remedy = describe(err)
	if f, ok := errors.AsType[*ForbiddenError](err); ok {
		r.Policy = string(f.Policy)
	}
	h.tables(&r)
	for _, b := range behaviours {
		r.Behaviours = append(r.Behaviours, entry(b.name, 0, b.since, h.have(b)))
	}
	unrepeat(&r)
	h.notes(&r)
	return r
}

func addEnvironment(r *probe.Report, e probe.Environment) {
	r.Kernel, r.Disabled, r.Group = e.Release, e.Disabled, e.Group
	r.Seccomp, r.SeccompFilters = e.Seccomp, e.Filters
	r.Memlock = probe.Memlock{Soft: jsonLimit(e.MemlockSoft), Hard: jsonLimit(e.MemlockHard), Exempt: e.LocksFreely()}
	r.Context, r.Container = e.Context, e.Container
	r.LSMs = append(r.LSMs, e.LSMs...)
}

func jsonLimit(n *int64) *int64 {
	if n != nil && *n == probe.Unlimited {
		return new(int64(-1))
	}
	return n
}

// describe splits a probe's error into the kind of result, the reason and the
// remedy.
func describe(err error) (a probe.Answer, reason, remedy string) {
	if err == nil {
		return probe.Yes, "", ""
	}
	if f, ok := errors.AsType[*ForbiddenError](err); ok {
		return probe.Forbidden, f.Reason, f.Remedy
	}
	if u, ok := errors.AsType[*UnsupportedError](err); ok {
		if u.Remedy == "" {
			return probe.Unsupported, u.Reason, newerKernel(u.Since)
		}
		return probe.Unsupported, u.Reason, u.Remedy
	}
	return probe.Inconclusive, err.Error(), ""
}

func entry(name string, number uint64, since string, err error) probe.Entry {
	e := probe.Entry{Name: name, Number: number, Since: since, Supported: err == nil}
	e.Answer, e.Reason, e.Remedy = describe(err)
	return e
}

// tables fills in the features that the kernel's tables list.
func (h *host) tables(r *probe.Report) {
	info := h.queried()
	if h.os != "linux" {
		info = nil
	}
	for _, b := range featureBits {
		e := entry(b.name, b.mask, b.since, h.haveFeature(uring.Features(b.mask)))
		r.Features = append(r.Features, known(e, info, func() bool { return uint64(info.Features)&b.mask != 0 }))
	}
	for op := range uring.Op(uring.OpCount) {
		e := entry(op.String(), uint64(op), opSince[op], h.haveOp(op))
		r.Ops = append(r.Ops, known(e, info, func() bool { return int(op) < info.Ops }))
	}
	for _, b := range setupBits {
		e := entry(b.name, b.mask, b.since, h.haveSetup(uring.SetupFlags(b.mask)))
		r.Setup = append(r.Setup, known(e, info, func() bool { return uint64(info.Setup)&b.mask != 0 }))
	}
	for op := range uring.RegisterOp(uring.RegisterOpCount) {
		e := entry(op.String(), uint64(op), registerSince[op], h.haveRegister(op))
		r.Register = append(r.Register, known(e, info, func() bool { return int(op) < info.RegisterOps }))
	}
	for _, b := range enterBits {
		e := entry(b.name, b.mask, b.since, h.haveEnter(uint32(b.mask)))
		r.Enter = append(r.Enter, known(e, info, func() bool { return uint64(info.Enter)&b.mask != 0 }))
	}
}

// known adds the result of [uring.Query] where a policy forbids the feature.
func known(e probe.Entry, info *uring.KernelInfo, has func() bool) probe.Entry {
	if e.Answer == probe.Forbidden && info != nil {
		e.Known = new(has())
	}
	return e
}

// unrepeat removes the reason of the whole report from its entries.
func unrepeat(r *probe.Report) {
	if r.Usable {
		return
	}
	for _, table := range [][]probe.Entry{r.Features, r.Ops, r.Setup, r.Register, r.Enter, r.Behaviours} {
		for i := range table {
			if e := &table[i]; e.Reason == r.Reason {
				e.Reason, e.Remedy = "", ""
			}
		}
	}
}

// notes adds the settings that a user may want to change although rings work.
func (h *host) notes(r *probe.Report) {
	if r.Usable {
		h.memlockNote(r)
	}
}

// memlockNote explains what the limit applies to on this kernel.
func (h *host) memlockNote(r *probe.Report) {
	soft := r.Memlock.Soft
	if soft == nil || *soft < 0 || r.Memlock.Exempt {
		return
	}
	text := "registered buffers and zero-copy sends may lock " + formatBytes(*soft) + " per user; rings do not count here"
	if !h.ringsAreFree(*soft) {
		text = "rings, registered buffers and zero-copy sends may lock " + formatBytes(*soft) + " per user"
	}
	r.Notes = append(r.Notes, probe.Note{About: "memlock", Text: text, Remedy: memlockRemedy(r.Container)})
}

// ringsAreFree reports whether a ring larger than the limit can be had. A limit
// beyond the largest ring is not put to the test, and counts as one on rings.
func (h *host) ringsAreFree(soft int64) bool {
	const (
		perEntry = 64 + 2*16 // an SQE and two CQEs
		most     = 32768
	)
	entries := soft/perEntry + 1
	if entries > most {
		return false
	}
	return h.settle(func() error {
		return h.withTrial(&uring.Options{Entries: uint32(entries)}, func(*trial) error { return nil })
	}) == nil
}

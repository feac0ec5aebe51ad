// SPDX-License-Identifier: MIT

package features

import (
	"errors"
	"runtime"

	"github.com/ringside-io/ringside/internal/probe"
	"github.com/ringside-io/ringside/uring"
)

// Report is everything that the probes find on a host, for people and for
// machines. Its JSON field names are stable.
type Report struct {
	OS     string `json:"os"`
	Arch   string `json:"arch"`
	Kernel string `json:"kernel"` // release, "" outside of Linux

	// Usable reports whether rings work; Answer, Reason, Policy and Remedy are
	// about that.
	Usable bool   `json:"usable"`
	Answer Answer `json:"answer"`
	Reason string `json:"reason,omitempty"`
	Policy Policy `json:"policy,omitempty"`
	Remedy string `json:"remedy,omitempty"`

	// Pointers are nil for what is not known.
	Disabled       *int     `json:"io_uring_disabled"` // sysctl, since Linux 6.6
	Group          *int     `json:"io_uring_group"`    // sysctl, -1 for none
	Seccomp        *int     `json:"seccomp"`           // 0 off, 1 strict, 2 filter
	SeccompFilters *int     `json:"seccomp_filters"`
	Memlock        Memlock  `json:"memlock"`
	LSMs           []string `json:"lsm"`       // active security modules
	Context        string   `json:"context"`   // their label of the process
	Container      string   `json:"container"` // a guess, "" for none
	Override       string   `json:"override"`  // value of RINGSIDE_BACKEND

	Features []Entry `json:"features"`
	Ops      []Entry `json:"ops"`
	Setup    []Entry `json:"setup_flags"`
	Register []Entry `json:"register_ops"`
	Enter    []Entry `json:"enter_flags"`
	// Behaviours are what was tried on throw-away rings.
	Behaviours []Entry `json:"behaviours"`

	Packages []Package `json:"packages"`
	Notes    []Note    `json:"notes"`
}

// Package is what a package of this module would do on the host, by its own
// choice.
type Package struct {
	Name    string `json:"name"`
	Backend string `json:"backend"` // "io_uring", or what it uses otherwise
	Reason  string `json:"reason"`  // why this one
	Remedy  string `json:"remedy,omitempty"`
}

// Answer is the outcome of a probe.
type Answer string

// The answers.
const (
	Yes          Answer = "yes"
	Unsupported  Answer = "unsupported"
	Forbidden    Answer = "forbidden"
	Inconclusive Answer = "inconclusive"
)

// Memlock is RLIMIT_MEMLOCK in bytes: -1 for unlimited, nil for unknown.
type Memlock struct {
	Soft *int64 `json:"soft"`
	Hard *int64 `json:"hard"`
	// Exempt reports that the process has CAP_IPC_LOCK on the host, so that the
	// limit does not bind it. Root of another user namespace is bound.
	Exempt bool `json:"exempt"`
}

// Entry is one probe and its answer.
type Entry struct {
	Name string `json:"name"` // the kernel's, without prefix
	// Number is that of an opcode or operation, or the value of a flag.
	Number uint64 `json:"number"`
	// Since is the first Linux that has it.
	Since string `json:"since"`
	// Supported is Answer == Yes: a program can use it.
	Supported bool   `json:"supported"`
	Answer    Answer `json:"answer"`
	// Known, set only where Answer is Forbidden and the kernel answers
	// queries (Linux 6.18), is whether the kernel has it.
	Known  *bool  `json:"known,omitempty"`
	Reason string `json:"reason,omitempty"`
	Remedy string `json:"remedy,omitempty"`
}

// Note is something worth changing on a host where rings work, or worth
// knowing.
type Note struct {
	About  string `json:"about"`
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"`
}

// Collect asks every probe and reports the answers. What the packages of this
// module choose is theirs to say, as this package knows none of them: Packages is
// for the caller to fill. The first call opens a few dozen short-lived rings.
func Collect() Report { return kernel.collect() }

func (h *host) collect() Report {
	r := Report{OS: h.os, Arch: runtime.GOARCH, LSMs: []string{}, Notes: []Note{},
		Packages: []Package{}}
	if h.os == "linux" {
		r.environment(h.environment())
	}
	r.Override = h.getenv(EnvBackend)
	var err error
	if err = h.haveIOURing(); err == nil {
		r.Usable = true
	}
	r.Answer, r.Reason, r.Remedy = describe(err)
	if f, ok := errors.AsType[*ForbiddenError](err); ok {
		r.Policy = f.Policy
	}
	h.tables(&r)
	for _, b := range behaviours {
		r.Behaviours = append(r.Behaviours, entry(b.name, 0, b.since, h.have(b)))
	}
	r.unrepeat()
	h.notes(&r)
	return r
}

func (r *Report) environment(e probe.Environment) {
	r.Kernel, r.Disabled, r.Group = e.Release, e.Disabled, e.Group
	r.Seccomp, r.SeccompFilters = e.Seccomp, e.Filters
	r.Memlock = Memlock{Soft: jsonLimit(e.MemlockSoft), Hard: jsonLimit(e.MemlockHard), Exempt: e.LocksFreely()}
	r.Context, r.Container = e.Context, e.Container
	r.LSMs = append(r.LSMs, e.LSMs...)
}

func jsonLimit(n *int64) *int64 {
	if n != nil && *n == probe.Unlimited {
		return new(int64(-1))
	}
	return n
}

// describe takes an answer apart.
func describe(err error) (a Answer, reason, remedy string) {
	if err == nil {
		return Yes, "", ""
	}
	if f, ok := errors.AsType[*ForbiddenError](err); ok {
		return Forbidden, f.Reason, f.Remedy
	}
	if u, ok := errors.AsType[*UnsupportedError](err); ok {
		if u.Remedy == "" {
			return Unsupported, u.Reason, newerKernel(u.Since)
		}
		return Unsupported, u.Reason, u.Remedy
	}
	return Inconclusive, err.Error(), ""
}

func entry(name string, number uint64, since string, err error) Entry {
	e := Entry{Name: name, Number: number, Since: since, Supported: err == nil}
	e.Answer, e.Reason, e.Remedy = describe(err)
	return e
}

// tables fills in what the tables of the kernel tell.
func (h *host) tables(r *Report) {
	info := h.queried()
	if h.os != "linux" {
		info = nil
	}
	for _, b := range featureBits {
		e := entry(b.name, b.mask, b.since, h.haveFeature(uring.Features(b.mask)))
		r.Features = append(r.Features, e.known(info, func() bool { return uint64(info.Features)&b.mask != 0 }))
	}
	for op := range uring.Op(uring.OpCount) {
		e := entry(op.String(), uint64(op), opSince[op], h.haveOp(op))
		r.Ops = append(r.Ops, e.known(info, func() bool { return int(op) < info.Ops }))
	}
	for _, b := range setupBits {
		e := entry(b.name, b.mask, b.since, h.haveSetup(uring.SetupFlags(b.mask)))
		r.Setup = append(r.Setup, e.known(info, func() bool { return uint64(info.Setup)&b.mask != 0 }))
	}
	for op := range uring.RegisterOp(uring.RegisterOpCount) {
		e := entry(op.String(), uint64(op), registerSince[op], h.haveRegister(op))
		r.Register = append(r.Register, e.known(info, func() bool { return int(op) < info.RegisterOps }))
	}
	for _, b := range enterBits {
		e := entry(b.name, b.mask, b.since, h.haveEnter(uring.EnterFlags(b.mask)))
		r.Enter = append(r.Enter, e.known(info, func() bool { return uint64(info.Enter)&b.mask != 0 }))
	}
}

// known adds what [uring.Query] answers where a policy forbids the feature.
func (e Entry) known(info *uring.KernelInfo, has func() bool) Entry {
	if e.Answer == Forbidden && info != nil {
		e.Known = new(has())
	}
	return e
}

// unrepeat removes the reason of the whole report from its entries.
func (r *Report) unrepeat() {
	if r.Usable {
		return
	}
	for _, table := range [][]Entry{r.Features, r.Ops, r.Setup, r.Register, r.Enter, r.Behaviours} {
		for i := range table {
			if e := &table[i]; e.Reason == r.Reason {
				e.Reason, e.Remedy = "", ""
			}
		}
	}
}

// notes adds what a user may want to change although rings work.
func (h *host) notes(r *Report) {
	if _, err := ParseMode(r.Override); err != nil {
		r.Notes = append(r.Notes, Note{EnvBackend, err.Error(), "set it to one of these, or unset it"})
	}
	if r.Usable {
		h.memlockNote(r)
	}
}

// memlockNote tells what the limit is for on this kernel.
func (h *host) memlockNote(r *Report) {
	soft := r.Memlock.Soft
	if soft == nil || *soft < 0 || r.Memlock.Exempt {
		return
	}
	text := "registered buffers and zero-copy sends may lock " + formatBytes(*soft) + " per user; rings do not count here"
	if !h.ringsAreFree(*soft) {
		text = "rings, registered buffers and zero-copy sends may lock " + formatBytes(*soft) + " per user"
	}
	r.Notes = append(r.Notes, Note{"memlock", text, memlockRemedy(r.Container)})
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

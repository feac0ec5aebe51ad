// SPDX-License-Identifier: MIT

package features

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/probe"
	"github.com/ringside-io/ringside/uring"
)

// HaveIOURing returns nil if a ring can be opened and used: setup, a no-op
// through the queues, and the opcode probe. (Linux 5.6)
func HaveIOURing() error { return kernel.haveIOURing() }

func (h *host) haveIOURing() error {
	_, err := h.usable()
	return err
}

// switchedOff returns the error for a user that has switched io_uring off, or has misspelt the
// value that does so.
func (h *host) switchedOff() error {
	value := h.getenv(EnvBackend)
	mode, err := ParseMode(value)
	switch {
	case err != nil:
		return &ForbiddenError{Feature: nameIOURing, Policy: PolicyEnvironment,
			Reason: fmt.Sprintf("the variable %s is %q, which is no backend", EnvBackend, value),
			Remedy: "set it to auto or io_uring, or unset it"}
	case mode == ModePlain:
		return &ForbiddenError{Feature: nameIOURing, Policy: PolicyEnvironment,
			Reason: "the variable " + EnvBackend + " is " + value, Remedy: "unset " + EnvBackend}
	}
	return nil
}

// host is what the probes ask: the kernel, and what stands between it and the
// process. Tests put others in its place.
type host struct {
	os          string
	open        func(*uring.Options) (*uring.Ring, error)
	query       func() (uring.KernelInfo, error)
	enter       func(flags uint32) syscall.Errno
	environment func() probe.Environment
	getenv      func(string) string

	facts    probe.Cache[struct{}, facts]
	answers  probe.Cache[string, struct{}]
	register probe.Cache[struct{}, []bool]
	asked    sync.Once
	info     *uring.KernelInfo // nil if the kernel does not support queries

	closed atomic.Int64 // when the last trial ended, in nanoseconds since the epoch
}

// facts are the properties of the kernel that one ring shows.
type facts struct {
	features uring.Features
	ops      uring.OpSet
}

// kernel is the host of this process.
var kernel = newHost()

func newHost() *host {
	h := &host{
		os:    runtime.GOOS,
		open:  func(o *uring.Options) (*uring.Ring, error) { return uring.Open(*o) },
		query: uring.Query,
		enter: probe.EnterErrno,
		environment: func() probe.Environment {
			e := probe.ReadEnvironment(os.DirFS("/"), os.Getenv)
			if e.Release == "" { // /proc is not there
				e.Release = probe.Release()
			}
			return e
		},
		getenv: os.Getenv,
	}
	h.facts.Conclusive = conclusive
	h.answers.Conclusive = conclusive
	h.register.Conclusive = conclusive
	return h
}

// queried returns the result of [uring.Query], nil before Linux 6.18.
func (h *host) queried() *uring.KernelInfo {
	h.asked.Do(func() {
		if info, err := h.query(); err == nil {
			h.info = &info
		}
	})
	return h.info
}

// usable opens the temporary ring that shows whether io_uring works, and what
// it has. The error is one of the package's.
func (h *host) usable() (facts, error) {
	if err := h.switchedOff(); err != nil {
		return facts{}, err
	}
	if h.os != "linux" {
		return facts{}, &UnsupportedError{Feature: nameIOURing, Since: sinceIOURing, Reason: "this is " + h.os}
	}
	return h.facts.Get(struct{}{}, func() (facts, error) {
		var f facts
		err := h.settle(func() (err error) {
			f, err = h.tryRing()
			return err
		})
		return f, h.explain(err)
	})
}

// tryRing makes every call that a ring needs once: a filter may allow some of
// them only.
func (h *host) tryRing() (f facts, err error) {
	err = h.withTrial(&uring.Options{Entries: 4}, func(t *trial) error {
		if cqe, err := t.do(func(e *uring.SQE) { e.Nop() }); err != nil || cqe.Res != 0 {
			return firstError(err, cqe.Err())
		}
		f.features = t.ring.Features()
		f.ops, err = t.ring.Probe()
		return err
	})
	return f, err
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// ask probes one feature, once. It calls question only on a host where rings work;
// elsewhere it returns the reason why they do not.
func (h *host) ask(feature, since string, question func(facts) error) error {
	f, err := h.usable()
	if err != nil {
		return relabel(err, feature, since)
	}
	_, err = h.answers.Get(feature, func() (struct{}, error) {
		return struct{}{}, h.explainFeature(feature, since, h.settle(func() error { return question(f) }))
	})
	return err
}

// drain is how long the kernel may take to release the memory that a closed ring
// had locked. A kernel worker releases it, without a notification.
const drain = 500 * time.Millisecond

// settle repeats ask while memory is short because of trials that ended just
// before. With 64 KiB of locked memory, five such trials are enough to cause that.
func (h *host) settle(ask func() error) error {
	until := time.Unix(0, h.closed.Load()).Add(drain)
	for pause := time.Millisecond; ; pause *= 2 {
		err := ask()
		if !errors.Is(err, syscall.ENOMEM) || time.Now().Add(pause).After(until) {
			return err
		}
		time.Sleep(pause)
	}
}

// relabel turns an error about io_uring into an error about a part of it.
func relabel(err error, feature, since string) error {
	if e, ok := err.(*UnsupportedError); ok {
		return &UnsupportedError{Feature: feature, Since: since, Reason: e.Reason, Remedy: e.Remedy, Cause: e.Cause}
	}
	return err
}

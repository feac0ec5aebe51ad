// SPDX-License-Identifier: MIT

package reactor

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/ringhook"
	"github.com/ringside-io/ringside/internal/ringloop"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// Tests use simulated rings.
type (
	ring   = ringhook.Ring
	parker = ringhook.Parker
)

// opener opens a ring; first is the ring of the first loop, or nil.
type opener func(o *Options, first ring) (ring, parker, error)

// Tests of packages that use reactors put simulated rings below them.
var _ = ringhook.Provide(func(options any, open ringhook.Opener) {
	options.(*Options).open = func(o *Options, _ ring) (ring, parker, error) {
		return open(ringhook.Options{Entries: o.Entries})
	}
})

// kernelRing is a ring of the kernel.
type kernelRing struct{ *uring.Ring }

// Submitter returns the calling thread: its exit cancels what it submits.
func (kernelRing) Submitter() int { return sys.ThreadID() }

// Exited reports whether a thread of the process has exited, and whether that is sure.
// A thread that is about to exit still exists.
func (kernelRing) Exited(thread int) (exited, sure bool) { return sys.ThreadExited(thread) }

// AnswersCancelled reports whether operations on a file may fail with ECANCELED by
// themselves, without a cancellation.
func (kernelRing) AnswersCancelled(fd int) bool { return sys.AnswersCancelled(fd) }

// openKernelRing opens a ring. All rings share the worker threads of the first. The
// ring is cooperative where the kernel supports that (5.19): the kernel does not
// interrupt a thread for each completion of what the thread has submitted, which takes
// a fifth of the time on a device as fast as the processors. The completion is handled
// when the thread next enters the kernel: if the thread computes, at the next clock
// tick, after 1 to 10 ms. On processors without ticks that could take forever.
func openKernelRing(o *Options, first ring) (ring, parker, error) {
	opts := uring.Options{
		Entries:     uint32(o.Entries),
		CQEntries:   uint32(max(o.InFlight, o.Entries)), // the kernel refuses fewer than Entries
		Clamp:       true,
		NoIOWait:    true,
		CoopTaskrun: !sys.Tickless(),
		Restrict:    o.restrictions(),
	}
	if first != nil {
		opts.AttachWQ = first.(kernelRing).Ring
	}
	r, err := ringloop.Open(opts, smallestCQ)
	if opts.CoopTaskrun && errors.Is(err, syscall.EINVAL) {
		opts.CoopTaskrun = false
		r, err = ringloop.Open(opts, smallestCQ)
	}
	if err != nil {
		return nil, nil, err
	}
	return kernelRing{r}, &netpolled{fd: r.FD()}, nil
}

// smallestCQ is the smallest completion queue worth having. One that is smaller than
// the table costs speed and loses nothing.
const smallestCQ = 32

// restrictions returns what the options permit the ring, nil for everything.
func (o *Options) restrictions() *uring.Restrictions {
	if o.Restrict == nil {
		return nil
	}
	ops := append(slices.Clone(o.Restrict), uring.OpAsyncCancel) // cancel
	slices.Sort(ops)
	limits := &uring.Restrictions{Ops: slices.Compact(ops), FlagsAllowed: uring.SQEAsync}
	if slices.ContainsFunc(ops, namesBuffer) {
		limits.RegisterOps = []uring.RegisterOp{uring.OpRegisterBuffers2, uring.OpRegisterBuffersUpdate, uring.OpRegisterCloneBuffers}
	}
	return limits
}

// namesBuffer reports whether each SQE of an opcode names a registered buffer.
func namesBuffer(op uring.Op) bool {
	switch op {
	case uring.OpReadFixed, uring.OpWriteFixed, uring.OpReadvFixed, uring.OpWritevFixed:
		return true
	}
	return false
}

// unlockTime is how long the kernel may take to unlock the memory of a closed ring. A
// kernel worker does that, and does not report when.
const unlockTime = 2 * time.Second

// lastClose is the time at which the last ring was closed, in nanoseconds.
var lastClose atomic.Int64

// retryOpen retries open while it returns ENOMEM and rings were closed less than
// unlockTime ago. Otherwise a program that opens and closes rings in turn would fail in
// the end.
func retryOpen(open func() (*loop, error)) (*loop, error) {
	until := time.Unix(0, lastClose.Load()).Add(unlockTime)
	for pause := time.Millisecond; ; pause *= 2 {
		l, err := open()
		if !errors.Is(err, syscall.ENOMEM) || time.Now().Add(pause).After(until) {
			return l, err
		}
		time.Sleep(pause)
	}
}

// netpolled waits in Go's netpoller until a ring's descriptor is readable. No thread
// blocks meanwhile.
type netpolled struct {
	fd       int
	poller   *ringloop.Poller
	stopping atomic.Bool
	done     sync.WaitGroup
}

// Start calls ready, on one goroutine, each time the ring has completions.
func (p *netpolled) Start(ready func(), failed func(error)) (err error) {
	if p.poller, err = ringloop.NewPoller(p.fd, "io_uring"); err != nil {
		return err
	}
	p.done.Go(func() {
		// Wait calls the function each time the ring becomes readable. The function
		// always returns false, so Wait returns when the poller is closed.
		err := p.poller.Wait(func(uintptr) bool {
			ready()
			return false
		})
		if !p.stopping.Load() {
			failed(fmt.Errorf("poll the ring's descriptor: %w", err))
		}
	})
	return nil
}

func (p *netpolled) Stop() error {
	p.stopping.Store(true)
	err := p.poller.Close()
	p.done.Wait()
	return err
}

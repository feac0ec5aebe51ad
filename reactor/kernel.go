// SPDX-License-Identifier: MIT

package reactor

import (
	"errors"
	"runtime"
	"syscall"

	"github.com/ringside-io/ringside/internal/ringloop"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// kernelRing is a ring of the kernel, with an eventfd to wake a pinned loop.
type kernelRing struct {
	*uring.Ring
	wake *sys.FD
	buf  []byte // eight bytes that a read of the eventfd fills
}

func (k *kernelRing) Enter(o uring.WaitOptions) (int, error) { return k.Wait(o) }

// openKernelRing opens the ring of loop number i. All share the worker threads
// of the first.
func openKernelRing(o *Options, i int, first ring) (ring, parker, error) {
	opts := &uring.Options{
		Entries:   uint32(o.Entries),
		CQEntries: uint32(max(o.InFlight, o.Entries)), // the kernel wants no fewer
		Clamp:     true,
		NoIOWait:  true,
		SQPoll:    o.SQPoll,
		Restrict:  o.restrictions(),
	}
	if first != nil {
		opts.AttachWQ = first.(*kernelRing).Ring
	}
	if !o.Pinned {
		return openShared(opts)
	}
	opts.DeferTaskrun = true
	r, err := ringloop.Open(*opts, smallestCQ)
	if err != nil {
		return nil, nil, err
	}
	k := &kernelRing{Ring: r}
	// Both make calls cheaper; neither is needed.
	_ = r.RegisterRingFD()
	if k.wake, err = sys.EventFD(); err != nil {
		return nil, nil, errors.Join(err, r.Close())
	}
	k.buf = make([]byte, 8)
	return k, nil, nil
}

// openShared opens the ring of a shared loop: a cooperative one where the kernel
// has that (5.19). Such a ring does not interrupt a thread for each completion of
// what that thread has submitted, which takes a fifth of the time on a device as
// fast as the processors. The completion comes when the thread next passes
// through the kernel: if it computes, at the next tick of the clock, after 1 to
// 10 ms. Processors without ticks would make it wait for ever.
func openShared(o *uring.Options) (ring, parker, error) {
	o.CoopTaskrun = !o.SQPoll && !sys.Tickless()
	r, err := ringloop.Open(*o, smallestCQ)
	if o.CoopTaskrun && errors.Is(err, syscall.EINVAL) {
		o.CoopTaskrun = false
		r, err = ringloop.Open(*o, smallestCQ)
	}
	if err != nil {
		return nil, nil, err
	}
	return &kernelRing{Ring: r}, &netpolled{fd: r.FD()}, nil
}

// smallestCQ is the least completion queue worth having: one too small for the table costs speed, no data.
const smallestCQ = 32

// Rearm reads the eventfd, which completes after the next Wake.
func (k *kernelRing) Rearm(e *uring.SQE) { e.Read(uring.Fd(k.wake.Int()), k.buf, 0) }

// Wake ends a wait of the thread.
func (k *kernelRing) Wake() { sys.Signal(k.wake) }

// provide opens a ring of provided buffers.
func (k *kernelRing) provide(o uring.BufRingOptions) (bufRing, error) {
	b, err := k.NewBufRing(o)
	if err != nil {
		return nil, err // not a nil pointer in an interface
	}
	return b, nil
}

func (k *kernelRing) Close() error {
	err := k.Ring.Close()
	if k.wake != nil {
		// The read that was armed dies with the ring.
		err = errors.Join(err, k.wake.Close())
	}
	runtime.KeepAlive(k.buf)
	return err
}

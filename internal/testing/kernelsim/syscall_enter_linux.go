// SPDX-License-Identifier: MIT

package kernelsim

import (
	"syscall"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// Enter implements [sys.SimulatedRing].
func (r *ring) Enter(c sys.EnterCall) (int, syscall.Errno) {
	k := r.k
	k.mu.Lock()
	defer k.mu.Unlock()
	wait := c.Flags&abi.IORING_ENTER_GETEVENTS != 0
	switch {
	case r.closed, r.failed:
		return 0, syscall.EBADF
	case r.disabled:
		return 0, syscall.EBADFD
	case r.issuer != 0 && r.issuer != sys.ThreadID() && (c.Submit > 0 || wait && r.defers()):
		return 0, syscall.EEXIST
	}
	r.updateReadable()
	for _, g := range r.groups {
		g.fetch(k)
	}
	n := 0
	if c.Submit > 0 {
		var err error
		r.entering = true
		n, err = k.submit(r, int(min(c.Submit, r.sqTail.Load()-r.sqHead.Load())))
		r.entering = false
		if errno, refused := err.(syscall.Errno); refused || n < int(c.Submit) {
			return n, errno
		}
	}
	if !wait {
		return n, 0
	}
	errno := r.wait(c)
	if n > 0 {
		errno = 0
	}
	return n, errno
}

// take takes one SQE.
func (r *ring) take() *op {
	head := r.sqHead.Load()
	at := head & (r.p.SqEntries - 1)
	if r.array != nil {
		at = r.array[at]
	}
	if at >= r.p.SqEntries {
		r.k.violation("ring %d: entry %d of %d", r.id, at, r.p.SqEntries)
		r.sqDropped.Add(1)
		r.sqHead.Store(head + 1)
		return nil
	}
	o := &op{ring: r, e: *r.sqes[at].Raw()}
	r.sqHead.Store(head + 1)
	r.k.trace.count(o.code().String())
	return o
}

// tasksAtOnce is the minimum number of deferred task-work items that one enter runs.
const tasksAtOnce = 20

// wait waits until there are enough completions, the timeout expires, or the wait is interrupted.
func (r *ring) wait(c sys.EnterCall) syscall.Errno {
	k := r.k
	need := min(c.Wait, r.p.CqEntries)
	r.catchUp(max(tasksAtOnce, int(need)))
	if r.ready() >= need {
		return 0
	}
	var result syscall.Errno
	end := func(errno syscall.Errno) func() {
		return func() {
			if result == 0 {
				result = errno
			}
			r.arrived.Broadcast()
		}
	}
	if k.dice(ofWait+uint64(r.id)<<33, r.waits).hit(k.o.Faults.Return) || happens(k.o.Plan.Wait) {
		k.trace.count("interrupted wait")
		k.spread(k.order.IntN(20), nil, end(syscall.EINTR))
	}
	if c.Timed {
		t := k.later(c.Timeout, end(syscall.ETIME))
		defer t.Stop()
	}
	r.waits++
	r.waiting++
	defer func() { r.waiting-- }()
	for {
		r.arrived.Wait()
		if r.closed || r.failed {
			return syscall.EBADF
		}
		r.catchUp(max(tasksAtOnce, int(need)))
		if r.ready() >= need {
			return 0
		}
		if result != 0 {
			return result
		}
	}
}

// SPDX-License-Identifier: MIT

package reactor

import (
	"bytes"
	"errors"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/testing/kernelsim"
	"github.com/ringside-io/ringside/uring"
)

// simOp is an operation with what the test expects of it.
type simOp struct {
	w    *environment
	tag  uint64
	op   Op
	fd   int
	off  int64
	buf  []byte
	want []byte // what a write takes from the buffer

	asked  atomic.Bool // it may have been cancelled
	cause  error       // of its context
	stream bool
	events int32 // of a stream
	over   atomic.Bool
}

func (w *environment) newOp() *simOp { return &simOp{w: w, tag: w.tags.Add(1)} }

// finish completes an operation after its builder.
func (o *simOp) finish() *simOp {
	kernelsim.Tag(&o.op.SQE, o.tag)
	return o
}

func (o *simOp) read(fd int, p []byte, off int64) *simOp {
	o.fd, o.off, o.buf = fd, off, p
	o.op.SQE.Read(uring.Fd(fd), p, off)
	o.op.Buf, o.op.Bytes = p, len(p)
	return o.finish()
}

// write fills p with what belongs to this operation.
func (o *simOp) write(fd int, p []byte, off int64) *simOp {
	for i := range p {
		p[i] = byte(o.tag) + byte(i)*3
	}
	o.fd, o.off, o.buf, o.want = fd, off, p, bytes.Clone(p)
	o.op.SQE.Write(uring.Fd(fd), p, off)
	o.op.Buf, o.op.Bytes = p, len(p)
	return o.finish()
}

func (o *simOp) nop() *simOp {
	o.op.SQE.Nop()
	return o.finish()
}

func (o *simOp) timer(d time.Duration) *simOp {
	ts := uring.NewTimespec(d)
	o.op.SQE.Timeout(&ts, 0, 0)
	o.op.Keep = &ts
	return o.finish()
}

func (o *simOp) poll(fd int, multi bool) *simOp {
	if o.stream = multi; multi {
		o.op.SQE.PollMultishot(uring.Fd(fd), 1)
	} else {
		o.op.SQE.PollAdd(uring.Fd(fd), 1)
	}
	return o.finish()
}

// ends checks the end of an operation and reports whether its buffer is the
// test's again.
func (o *simOp) ends(res Result) bool {
	w := o.w
	if o.over.Swap(true) {
		w.errorf("tag %d ends twice", o.tag)
	}
	out := w.k.Result(o.tag)
	if errors.Is(res.Cause, ErrFailed) {
		if !w.k.Failed() {
			w.errorf("tag %d: %v, but no ring has failed", o.tag, res.Cause)
		}
		return false
	}
	if out.Submitted != out.Ended {
		w.errorf("tag %d: it has ended for its user, with %+v, and is still in the kernel: %+v", o.tag, res, out)
		return false
	}
	if why := o.implausible(res, out); why != "" {
		w.errorf("tag %d: %s: result %+v of fd %d, in the kernel %+v; asked %v, now %v", o.tag, why, res, o.fd, out, o.asked.Load(), time.Now())
	}
	return true
}

// implausible says what is wrong with a result.
func (o *simOp) implausible(res Result, out kernelsim.Result) string {
	stopped := out.Submitted == 0 || out.Res == -int32(syscall.ECANCELED) || out.Res == -int32(syscall.EINTR)
	switch {
	case res.Cause == nil:
		return o.unlikely(res, out)
	case !stopped:
		return "the kernel had another answer"
	case errors.Is(res.Cause, ErrClosed):
		if !o.w.closing.Load() {
			return "the reactor is not closed"
		}
	case o.cause != nil && errors.Is(res.Cause, o.cause):
		if !o.asked.Load() {
			return "its context has not ended"
		}
	default:
		return "an error from nowhere"
	}
	return ""
}

// unlikely says what is wrong with an answer of the kernel.
func (o *simOp) unlikely(res Result, out kernelsim.Result) string {
	cancelled := res.Res == -int32(syscall.ECANCELED)
	if cancelled && !o.asked.Load() && !o.stream {
		return "cancelled unasked"
	}
	if res.Res == -int32(syscall.EINTR) && !o.stream && o.want == nil {
		return "interrupted, and not started again"
	}
	switch {
	case res.Res == out.Res:
	case cancelled && out.Res == -int32(syscall.EINTR):
	default:
		return "not what the kernel has answered"
	}
	if res.Res <= 0 {
		if res.Res == 0 && o.buf != nil && (o.fd != o.w.file || o.off < int64(len(o.w.content))) {
			return "nothing, but not at the end"
		}
		return ""
	}
	if o.buf == nil {
		return ""
	}
	if int(res.Res) > len(o.buf) {
		return "more than there is room"
	}
	n := res.Res
	switch {
	case o.want != nil && !bytes.Equal(out.Data, o.want[:n]):
		return "other bytes were written"
	case o.want == nil && !bytes.Equal(out.Data, o.buf[:n]):
		return "other bytes are in the buffer"
	case o.fd == o.w.file && !bytes.Equal(o.buf[:n], o.w.content[o.off:o.off+int64(n)]):
		return "these bytes are not the file's"
	}
	return ""
}

// event checks one event of a stream.
func (o *simOp) event(res Result) {
	if o.over.Load() {
		o.w.errorf("tag %d: an event after the end: %+v", o.tag, res)
	}
	if res.Cause == nil && res.Res > 0 && res.Res>>kernelsim.EventShift != o.events {
		o.w.errorf("tag %d: event %d came as number %d", o.tag, res.Res>>kernelsim.EventShift, o.events)
	}
	if res.More() {
		o.events++
		return
	}
	o.ends(res)
}

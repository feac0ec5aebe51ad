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

// simOp is an operation with the results that the test expects.
type simOp struct {
	w    *environment
	tag  uint64
	op   Op
	fd   int
	off  int64
	buf  []byte
	want []byte // the bytes that a write takes from the buffer

	asked  atomic.Bool // a cancellation may have reached it
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

// write fills p with the bytes of this operation.
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

// ends checks the end of an operation and reports whether its buffer belongs to the test
// again.
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
		w.errorf("tag %d: the operation has ended with %+v and is still in the kernel: %+v", o.tag, res, out)
		return false
	}
	if why := o.implausible(res, out); why != "" {
		w.errorf("tag %d: %s: result %+v of fd %d, in the kernel %+v; cancellation requested %v, now %v", o.tag, why, res, o.fd, out, o.asked.Load(), time.Now())
	}
	return true
}

// implausible returns why a result is wrong, or "".
func (o *simOp) implausible(res Result, out kernelsim.Result) string {
	stopped := out.Submitted == 0 || out.Res == -int32(syscall.ECANCELED) || out.Res == -int32(syscall.EINTR)
	switch {
	case res.Cause == nil:
		return o.unlikely(res, out)
	case !stopped:
		return "the kernel had another result"
	case errors.Is(res.Cause, ErrClosed):
		if !o.w.closing.Load() {
			return "the reactor is not closed"
		}
	case o.cause != nil && errors.Is(res.Cause, o.cause):
		if !o.asked.Load() {
			return "its context has not ended"
		}
	default:
		return "an error that neither the kernel nor Close caused"
	}
	return ""
}

// unlikely returns why a result of the kernel is wrong, or "".
func (o *simOp) unlikely(res Result, out kernelsim.Result) string {
	cancelled := res.Res == -int32(syscall.ECANCELED)
	if cancelled && !o.asked.Load() && !o.stream {
		return "cancelled without a request"
	}
	if res.Res == -int32(syscall.EINTR) && !o.stream && o.want == nil {
		return "interrupted, and not submitted again"
	}
	switch {
	case res.Res == out.Res:
	case cancelled && out.Res == -int32(syscall.EINTR):
	default:
		return "not the kernel's result"
	}
	if res.Res <= 0 {
		if res.Res == 0 && o.buf != nil && (o.fd != o.w.file || o.off < int64(len(o.w.content))) {
			return "0 bytes, but not at the end"
		}
		return ""
	}
	if o.buf == nil {
		return ""
	}
	if int(res.Res) > len(o.buf) {
		return "more bytes than the buffer has"
	}
	n := res.Res
	switch {
	case o.want != nil && !bytes.Equal(out.Data, o.want[:n]):
		return "other bytes were written"
	case o.want == nil && !bytes.Equal(out.Data, o.buf[:n]):
		return "other bytes are in the buffer"
	case o.fd == o.w.file && !bytes.Equal(o.buf[:n], o.w.content[o.off:o.off+int64(n)]):
		return "the bytes differ from those of the file"
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

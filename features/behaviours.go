// SPDX-License-Identifier: MIT

package features

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// behaviour is a feature that no table of the kernel lists. A trial finds it out.
type behaviour struct {
	name  string
	since string
	try   func(h *host) error
}

const nameSQPoll = "SQPOLL"

var (
	multishotPoll    = &behaviour{"multishot poll", "5.13", tryMultishotPoll}
	multishotAccept  = &behaviour{"multishot accept", "5.19", tryMultishotAccept}
	multishotRecv    = &behaviour{"multishot receive", "6.0", tryMultishotRecv}
	multishotTimeout = &behaviour{"multishot timeout", "6.4", tryMultishotTimeout}
	bufferRing       = &behaviour{"buffer ring", "5.19", tryBufferRing}
	bufferRingKernel = &behaviour{"buffer ring in kernel memory", "6.4", tryBufferRingKernel}
	bufferRingInc    = &behaviour{"incremental buffer ring", "6.12", tryBufferRingInc}
	bundle           = &behaviour{"bundles", "6.10", tryBundle}
	sendZC           = &behaviour{"zero-copy send", "6.0", trySendZC}
	sendVectorized   = &behaviour{"vectorized send", "6.17", trySendVectorized}
	deferTaskrun     = &behaviour{"deferred task work", "6.1", tryDeferTaskrun}
	sqPoll           = &behaviour{nameSQPoll, "5.11", trySQPoll}
	msgRing          = &behaviour{"message to a ring", "5.18", tryMsgRing}
	sockOpt          = &behaviour{"socket options", "6.7", trySockOpt}
	nopInject        = &behaviour{"injected results", "6.10", tryNopInject}
)

// behaviours are all of them in the order of reports.
var behaviours = []*behaviour{
	multishotPoll, multishotAccept, multishotRecv, multishotTimeout,
	bufferRing, bufferRingKernel, bufferRingInc, bundle,
	sendZC, sendVectorized, deferTaskrun, sqPoll, msgRing, sockOpt, nopInject,
}

func (h *host) have(b *behaviour) error {
	return h.ask(b.name, b.since, func(facts) error { return b.try(h) })
}

// HaveMultishotPoll returns nil if one SQE can poll a file repeatedly. (Linux 5.13)
func HaveMultishotPoll() error { return kernel.have(multishotPoll) }

// HaveMultishotAccept returns nil if one SQE can accept many connections. (Linux 5.19)
func HaveMultishotAccept() error { return kernel.have(multishotAccept) }

// HaveMultishotRecv returns nil if one SQE can receive repeatedly into provided
// buffers. (Linux 6.0)
func HaveMultishotRecv() error { return kernel.have(multishotRecv) }

// HaveBufRing returns nil if the kernel supports provided-buffer rings. (Linux 5.19)
func HaveBufRing() error { return kernel.have(bufferRing) }

// HaveDeferTaskrun returns nil if a ring with a single issuer can defer task work
// until its thread waits for completions. (Linux 6.1)
func HaveDeferTaskrun() error { return kernel.have(deferTaskrun) }

// HaveSQPoll returns nil if this process may use a kernel thread that submits
// (SQPOLL). The kernel requires CAP_SYS_ADMIN before Linux 5.11 and CAP_SYS_NICE before
// 5.13; without it the result is a [ForbiddenError]. (Linux 5.11)
func HaveSQPoll() error { return kernel.have(sqPoll) }

// plain is the ring of most trials.
func plain() *uring.Options { return &uring.Options{Entries: 8} }

// multishot starts an operation, makes something happen, and expects a
// completion after which more are to come.
func (t *trial) multishot(call string, build func(*uring.SQE), happen func() error) error {
	const id = 1
	if err := t.start(id, build); err != nil {
		return err
	}
	if err := happen(); err != nil {
		return err
	}
	cqe, err := t.await(id)
	if err != nil {
		return err
	}
	if err := answer(call, cqe.Err()); err != nil {
		return err
	}
	if !cqe.Has(uring.CQEMore) {
		return lacking("%s completes once", call)
	}
	return nil
}

func tryMultishotPoll(h *host) error {
	return h.withTrial(plain(), func(t *trial) error {
		a, b, err := t.files.pair()
		if err != nil {
			return err
		}
		const pollIn = 1
		return t.multishot("POLL_ADD with ADD_MULTI", func(e *uring.SQE) { e.PollMultishot(uring.Fd(a), pollIn) },
			func() error { return t.files.send(b, []byte{1}) })
	})
}

func tryMultishotAccept(h *host) error {
	return h.withTrial(plain(), func(t *trial) error {
		l, err := t.files.listener()
		if err != nil {
			return err
		}
		t.results[1] = true
		return t.multishot("ACCEPT with MULTISHOT", func(e *uring.SQE) { e.AcceptMultishot(uring.Fd(l), acceptCloexec) },
			func() error { return nil })
	})
}

func tryMultishotRecv(h *host) error {
	return h.withBuffers(uring.BufRingOptions{Entries: 4, BufferSize: 64}, func(t *trial, g *uring.BufRing) error {
		a, b, err := t.files.pair()
		if err != nil {
			return err
		}
		return t.multishot("RECV with MULTISHOT", func(e *uring.SQE) { e.RecvMultishot(uring.Fd(a), 0, g.Group()) },
			func() error { return t.files.send(b, []byte{1}) })
	})
}

func tryMultishotTimeout(h *host) error {
	return h.withTrial(plain(), func(t *trial) error {
		ts := new(uring.NewTimespec(time.Millisecond))
		t.hold(ts)
		if err := t.start(1, func(e *uring.SQE) { e.Timeout(ts, 2, uring.TimeoutMultishot) }); err != nil {
			return err
		}
		cqe, err := t.await(1)
		switch {
		case err != nil:
			return err
		case cqe.Errno() != sys.ETIME:
			return firstError(answer("TIMEOUT with MULTISHOT", cqe.Err()), lacking("TIMEOUT with MULTISHOT completes with %d", cqe.Res))
		case !cqe.Has(uring.CQEMore):
			return lacking("TIMEOUT with MULTISHOT completes once")
		}
		return nil
	})
}

// withBuffers is a trial with a buffer ring of group 0.
func (h *host) withBuffers(o uring.BufRingOptions, try func(*trial, *uring.BufRing) error) error {
	return h.withTrial(plain(), func(t *trial) error {
		g, err := t.ring.NewBufRing(o)
		if err != nil {
			return answer("REGISTER_PBUF_RING", err)
		}
		return try(t, g)
	})
}

// tryReceive expects to receive one byte into a provided buffer.
func (h *host) tryReceive(o uring.BufRingOptions, flags uring.CQEFlags) error {
	return h.withBuffers(o, func(t *trial, g *uring.BufRing) error {
		a, b, err := t.files.pair()
		if err != nil {
			return err
		}
		if err := t.files.send(b, []byte{1}); err != nil {
			return err
		}
		cqe, err := t.do(func(e *uring.SQE) { e.RecvSelect(uring.Fd(a), 0, 0, g.Group()) })
		if err != nil {
			return err
		}
		if err := answer("RECV with BUFFER_SELECT", cqe.Err()); err != nil {
			return err
		}
		if !cqe.Has(uring.CQEBuffer | flags) {
			return lacking("RECV with BUFFER_SELECT completes with the flags %#x", cqe.Flags)
		}
		return nil
	})
}

func tryBufferRing(h *host) error {
	return h.tryReceive(uring.BufRingOptions{Entries: 4, BufferSize: 64}, 0)
}

func tryBufferRingKernel(h *host) error {
	return h.tryReceive(uring.BufRingOptions{Entries: 4, BufferSize: 64, KernelMemory: true}, 0)
}

func tryBufferRingInc(h *host) error {
	return h.tryReceive(uring.BufRingOptions{Entries: 4, BufferSize: 64, Incremental: true}, uring.CQEBufMore)
}

// tryBundle sends: how much a bundle receives at once depends on the socket.
func tryBundle(h *host) error {
	return h.withBuffers(uring.BufRingOptions{Entries: 4, BufferSize: 1}, func(t *trial, g *uring.BufRing) error {
		a, _, err := t.files.pair()
		if err != nil {
			return err
		}
		cqe, err := t.do(func(e *uring.SQE) { e.SendBundle(uring.Fd(a), 0, g.Group()) })
		if err != nil {
			return err
		}
		if n := g.Len(); int(cqe.Res) != n {
			return firstError(answer("SEND with BUNDLE", cqe.Err()), lacking("SEND with BUNDLE sends %d of %d buffers", cqe.Res, n))
		}
		return nil
	})
}

func trySendZC(h *host) error {
	return h.withTrial(plain(), func(t *trial) error {
		fd, err := t.files.udp()
		if err != nil {
			return err
		}
		p := make([]byte, 16)
		t.hold(p)
		if err := t.start(1, func(e *uring.SQE) { e.SendZC(uring.Fd(fd), p, 0, 0) }); err != nil {
			return err
		}
		cqe, err := t.await(1)
		if err != nil {
			return err
		}
		if err := answer("SEND_ZC", cqe.Err()); err != nil || !cqe.Has(uring.CQEMore) {
			return firstError(err, lacking("SEND_ZC announces no notification"))
		}
		cqe, err = t.await(1)
		if err == nil && !cqe.Has(uring.CQENotif) {
			err = lacking("SEND_ZC completes with the flags %#x", cqe.Flags)
		}
		return err
	})
}

func trySendVectorized(h *host) error {
	return h.withTrial(plain(), func(t *trial) error {
		a, _, err := t.files.pair()
		if err != nil {
			return err
		}
		iov := []uring.Iovec{uring.NewIovec(make([]byte, 3)), uring.NewIovec(make([]byte, 4))}
		t.hold(iov)
		cqe, err := t.do(func(e *uring.SQE) { e.SendVec(uring.Fd(a), iov, 0) })
		if err != nil {
			return err
		}
		if cqe.Res != 7 {
			return firstError(answer("SEND with VECTORIZED", cqe.Err()), lacking("SEND with VECTORIZED sends %d of 7 bytes", cqe.Res))
		}
		return nil
	})
}

// tryNop opens a ring that needs more than plain ones, and uses it.
func (h *host) tryNop(o *uring.Options) error {
	opened := false
	err := h.withTrial(o, func(t *trial) error {
		opened = true
		_, err := t.do(func(e *uring.SQE) { e.Nop() })
		return err
	})
	if !opened {
		return answer("io_uring_setup", err)
	}
	return err
}

func tryDeferTaskrun(h *host) error { return h.tryNop(&uring.Options{Entries: 4, DeferTaskrun: true}) }

func trySQPoll(h *host) error {
	return h.tryNop(&uring.Options{Entries: 4, SQPoll: true, SQPollIdle: time.Millisecond})
}

func tryMsgRing(h *host) error {
	return h.withTrial(plain(), func(to *trial) error {
		return h.withTrial(plain(), func(from *trial) error {
			const id, value = 7, 42
			cqe, err := from.do(func(e *uring.SQE) { e.MsgRing(uring.Fd(to.ring.FD()), id, value) })
			if err != nil {
				return err
			}
			if err := answer("MSG_RING", cqe.Err()); err != nil {
				return err
			}
			if cqe, err = to.await(id); err == nil && cqe.Res != value {
				err = fmt.Errorf("the message %d arrived as %d", value, cqe.Res)
			}
			return err
		})
	})
}

func trySockOpt(h *host) error {
	return h.withTrial(plain(), func(t *trial) error {
		fd, err := t.files.tcp()
		if err != nil {
			return err
		}
		val := make([]byte, 4)
		t.hold(val)
		cqe, err := t.do(func(e *uring.SQE) { e.GetSockOpt(uring.Fd(fd), solSocket, soType, val) })
		if err != nil {
			return err
		}
		if err := answer("URING_CMD on a socket", cqe.Err()); err != nil {
			return err
		}
		if got := binary.NativeEndian.Uint32(val); got != sockStream {
			return fmt.Errorf("the option SO_TYPE of a stream socket is %d", got)
		}
		return nil
	})
}

func tryNopInject(h *host) error {
	return h.withTrial(plain(), func(t *trial) error {
		const value = 42
		cqe, err := t.do(func(e *uring.SQE) { e.NopWith(uring.NopOptions{Inject: true, Result: value}) })
		if err != nil {
			return err
		}
		if cqe.Res != value {
			return firstError(answer("NOP with INJECT_RESULT", cqe.Err()), lacking("NOP with INJECT_RESULT completes with %d", cqe.Res))
		}
		return nil
	})
}

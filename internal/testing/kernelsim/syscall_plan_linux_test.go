// SPDX-License-Identifier: MIT

package kernelsim

import (
	"errors"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/uring"
)

// once gives the first operation of a kind a fault.
func once(code uring.Op, f Fault) Plan {
	done := false
	return Plan{Op: func(e *uring.RawSQE) Fault {
		if done || uring.Op(e.Opcode) != code {
			return Fault{}
		}
		done = true
		return f
	}}
}

// TestHookFaults injects each fault into one operation.
func TestHookFaults(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault Fault
		want  int32
	}{
		{"error", Fault{Errno: syscall.EIO}, no(syscall.EIO)},
		{"short", Fault{Short: true}, 4},
		{"late", Fault{Late: true}, 8},
		{"unasked", Fault{Unasked: true}, no(syscall.ECANCELED)},
	} {
		for _, code := range []uring.Op{uring.OpRecv, uring.OpSend} {
			t.Run(c.name+" "+code.String(), func(t *testing.T) {
				onHookBench(t, flavours["deferred"], once(code, c.fault), func(b *hookBench) {
					x, y := b.pair()
					p := b.memory(8)
					b.write(y, "01234567")
					again := func(ud uint64) {
						b.add(ud, func(e *uring.SQE) {
							if code == uring.OpRecv {
								e.Recv(uring.Fd(x), p, 0)
							} else {
								e.Send(uring.Fd(x), p, 0)
							}
						})
						b.submit()
					}
					again(1)
					b.res(1, 1, c.want)
					again(2)
					left := 8 - max(c.want, 0)
					if code == uring.OpRecv && left > 0 {
						b.res(2, 1, left)
					} else if code == uring.OpSend {
						b.res(2, 1, 8)
					} else {
						b.write(y, "x")
						b.res(2, 1, 1)
					}
				})
			})
		}
	}
}

// TestHookLost makes a cancellation and an update come too late.
func TestHookLost(t *testing.T) {
	lost := Fault{Errno: syscall.EALREADY, Lost: true}
	for _, code := range []uring.Op{uring.OpAsyncCancel, uring.OpPollRemove} {
		onHookBench(t, flavours["plain"], once(code, lost), func(b *hookBench) {
			x, _ := b.pair()
			b.add(1, func(e *uring.SQE) { e.PollAdd(uring.Fd(x), 1) })
			for n := range uint64(2) {
				b.add(2+n, func(e *uring.SQE) {
					if code == uring.OpPollRemove {
						e.PollRemove(1)
					} else {
						e.Cancel(1)
					}
				})
			}
			b.submit()
			b.res(2, 1, no(syscall.EALREADY))
			b.res(3, 1, 0)
			b.res(1, 1, no(syscall.ECANCELED))
		})
	}
}

// TestHookEnters makes calls consume fewer entries, or fail, once each.
func TestHookEnters(t *testing.T) {
	calls := 0
	p := Plan{Submit: func(n int) (int, bool, syscall.Errno) {
		switch calls++; calls {
		case 1:
			return 1, false, 0
		case 2:
			return 0, false, syscall.EBUSY
		}
		return n, false, 0
	}, Overflow: func() bool { return calls == 1 }, Wake: func() bool { return calls > 2 }}
	onHookBench(t, flavours["plain"], p, func(b *hookBench) {
		for ud := range uint64(3) {
			b.add(ud, func(e *uring.SQE) { e.Nop() })
		}
		if n, err := b.r.Submit(); n != 1 || err != nil || b.r.SQFlags()&uring.SQCQOverflow == 0 {
			b.Errorf("%d entries were consumed, %v, flags %x", n, err, b.r.SQFlags())
		}
		if _, err := b.r.Submit(); !errors.Is(err, syscall.EBUSY) {
			b.Errorf("the second call: %v", err)
		}
		for ud := range uint64(3) {
			b.res(ud, 1, 0)
		}
		if b.r.CQOverflow() != 1 {
			b.Errorf("%d overflows", b.r.CQOverflow())
		}
	})
}

// TestHookFailed makes a ring fail permanently, and closes it with operations in flight.
func TestHookFailed(t *testing.T) {
	calls := 0
	p := Plan{Submit: func(n int) (int, bool, syscall.Errno) {
		if calls++; calls > 1 {
			return 0, false, syscall.EBADF
		}
		return n, false, 0
	}}
	onHookBench(t, flavours["plain"], p, func(b *hookBench) {
		x, _ := b.pair()
		mem := b.memory(64)
		b.add(1, func(e *uring.SQE) { e.Recv(uring.Fd(x), mem, 0) })
		b.submit()
		b.add(2, func(e *uring.SQE) { e.Nop() })
		for range 2 {
			if _, err := b.r.Submit(); !errors.Is(err, syscall.EBADF) {
				b.Errorf("after the end: %v", err)
			}
		}
		_ = b.r.CloseNow()
		clear(mem)
		b.k.Settle()
		if string(mem) == string(make([]byte, 64)) {
			b.Error("the kernel did not write to the memory before the completion")
		}
	})
}

// TestHookViolations breaks the rules for users of a ring.
func TestHookViolations(t *testing.T) {
	for want, do := range map[string]func(b *hookBench, x int, bufs *uring.BufRing){
		"in flight": func(b *hookBench, x int, _ *uring.BufRing) {
			b.add(1, func(e *uring.SQE) { e.Recv(uring.Fd(x), b.memory(8), 0) })
		},
		"is still that of": func(b *hookBench, x int, _ *uring.BufRing) {
			p := b.memory(8)
			b.add(1, func(e *uring.SQE) { e.Recv(uring.Fd(x), p, 0) })
			b.add(2, func(e *uring.SQE) { e.Recv(uring.Fd(x), p[4:], 0) })
		},
		"given back twice": func(b *hookBench, _ int, bufs *uring.BufRing) {
			bufs.Recycle(1)
			bufs.Publish()
			b.add(1, func(e *uring.SQE) { e.Nop() })
		},
		"unregistered while": func(b *hookBench, x int, bufs *uring.BufRing) {
			b.add(1, func(e *uring.SQE) { e.RecvMultishot(uring.Fd(x), 0, 7) })
			b.submit()
			_ = bufs.Close()
		},
		"not simulated": func(b *hookBench, _ int, _ *uring.BufRing) {
			b.add(1, func(e *uring.SQE) { e.Fsync(uring.Fd(0), false) })
		},
	} {
		t.Run(want, func(t *testing.T) {
			onHookBench(t, flavours["plain"], Plan{}, func(b *hookBench) {
				b.want = want
				x, _ := b.pair()
				bufs, err := b.r.NewBufRing(uring.BufRingOptions{Group: 7, Entries: 2, BufferSize: 4})
				if err != nil {
					b.Fatal(err)
				}
				do(b, x, bufs)
				_, _ = b.r.Submit()
			})
		})
	}
}

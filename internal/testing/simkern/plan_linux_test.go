// SPDX-License-Identifier: MIT

package simkern

import (
	"errors"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/kernelsim"
	"github.com/ringside-io/ringside/uring"
)

// once has the first operation of a kind have a fate.
func once(code uring.Op, f kernelsim.Fate) Plan {
	done := false
	return Plan{Op: func(e *uring.RawSQE) kernelsim.Fate {
		if done || uring.Op(e.Opcode) != code {
			return kernelsim.Fate{}
		}
		done = true
		return f
	}}
}

// TestFates has operations meet each fate once.
func TestFates(t *testing.T) {
	for _, c := range []struct {
		name string
		fate kernelsim.Fate
		want int32
	}{
		{"error", kernelsim.Fate{Errno: syscall.EIO}, no(syscall.EIO)},
		{"short", kernelsim.Fate{Short: true}, 4},
		{"late", kernelsim.Fate{Late: true}, 8},
		{"unasked", kernelsim.Fate{Unasked: true}, no(syscall.ECANCELED)},
	} {
		for _, code := range []uring.Op{uring.OpRecv, uring.OpSend} {
			t.Run(c.name+" "+code.String(), func(t *testing.T) {
				onBench(t, flavours["deferred"], once(code, c.fate), func(b *bench) {
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

// TestLost has a cancellation and a change say that they came too late.
func TestLost(t *testing.T) {
	lost := kernelsim.Fate{Errno: syscall.EALREADY, Lost: true}
	for _, code := range []uring.Op{uring.OpAsyncCancel, uring.OpPollRemove} {
		onBench(t, flavours["plain"], once(code, lost), func(b *bench) {
			x, _ := b.pair()
			b.add(1, func(e *uring.SQE) { e.PollAdd(uring.Fd(x), 1) })
			for n := range uint64(2) {
				b.add(2+n, func(e *uring.SQE) {
					if code == uring.OpPollRemove {
						e.PollRemove(1)
					} else {
						e.Cancel(1, 0)
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

// TestEnters has calls take less, or fail, once each.
func TestEnters(t *testing.T) {
	calls := 0
	p := Plan{Enter: func(n int) (int, syscall.Errno) {
		switch calls++; calls {
		case 1:
			return 1, 0
		case 2:
			return 0, syscall.EBUSY
		}
		return n, 0
	}, Overflow: func() bool { return calls == 1 }, Wake: func() bool { return calls > 2 }}
	onBench(t, flavours["plain"], p, func(b *bench) {
		for ud := range uint64(3) {
			b.add(ud, func(e *uring.SQE) { e.Nop() })
		}
		if n, err := b.r.Submit(); n != 1 || err != nil || b.r.SQFlags()&uring.SQCQOverflow == 0 {
			b.Errorf("%d entries are taken, %v, flags %x", n, err, b.r.SQFlags())
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

// TestFailed has a ring fail for good, and closes it with what is in flight.
func TestFailed(t *testing.T) {
	calls := 0
	p := Plan{Enter: func(n int) (int, syscall.Errno) {
		if calls++; calls > 1 {
			return 0, syscall.EBADF
		}
		return n, 0
	}}
	onBench(t, flavours["plain"], p, func(b *bench) {
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
			b.Error("the kernel does not use its right to the memory")
		}
	})
}

// TestViolations does what nobody may do.
func TestViolations(t *testing.T) {
	for want, do := range map[string]func(b *bench, x int, bufs *uring.BufRing){
		"in flight": func(b *bench, x int, _ *uring.BufRing) {
			b.add(1, func(e *uring.SQE) { e.Recv(uring.Fd(x), b.memory(8), 0) })
		},
		"is still that of": func(b *bench, x int, _ *uring.BufRing) {
			p := b.memory(8)
			b.add(1, func(e *uring.SQE) { e.Recv(uring.Fd(x), p, 0) })
			b.add(2, func(e *uring.SQE) { e.Recv(uring.Fd(x), p[4:], 0) })
		},
		"given back twice": func(b *bench, _ int, bufs *uring.BufRing) {
			bufs.Recycle(1)
			bufs.Publish()
			b.add(1, func(e *uring.SQE) { e.Nop() })
		},
		"unregistered while": func(b *bench, x int, bufs *uring.BufRing) {
			b.add(1, func(e *uring.SQE) { e.RecvMultishot(uring.Fd(x), 0, 7) })
			b.submit()
			_ = bufs.Close()
		},
		"not simulated": func(b *bench, _ int, _ *uring.BufRing) {
			b.add(1, func(e *uring.SQE) { e.Fsync(uring.Fd(0), false) })
		},
	} {
		t.Run(want, func(t *testing.T) {
			onBench(t, flavours["plain"], Plan{}, func(b *bench) {
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

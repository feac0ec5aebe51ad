// SPDX-License-Identifier: MIT

package kernelsim

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// overFlavours runs a test on each flavour of ring.
func overFlavours(t *testing.T, test func(b *hookBench)) {
	for name, o := range flavours {
		t.Run(name, func(t *testing.T) { onHookBench(t, o, Plan{}, test) })
	}
}

// TestHookSubmitWays uses stale counts of Publish.
// Promise: uring/entry-executed-count
func TestHookSubmitWays(t *testing.T) {
	overFlavours(t, func(b *hookBench) {
		dice, steps := rand.New(rand.NewPCG(1, 2)), make([]byte, 60)
		for range 50 {
			for i := range steps {
				steps[i] = byte(dice.Uint32())
			}
			ringtest.SubmitWays(b.T, b.r, steps)
		}
	})
}

// TestHookFiles reads and writes, also with registered memory.
func TestHookFiles(t *testing.T) {
	overFlavours(t, func(b *hookBench) {
		f, err := os.Create(filepath.Join(b.TempDir(), "file"))
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		fd, mem, text := uring.Fd(int(f.Fd())), b.memory(16), b.memory(10)
		copy(text, "0123456789")
		if err := b.r.RegisterBuffers([][]byte{mem[:8]}); err != nil {
			b.Fatal(err)
		}
		b.add(1, func(e *uring.SQE) { e.Write(fd, text, 2) })
		b.res(1, 1, 10)
		b.add(2, func(e *uring.SQE) { e.ReadFixed(fd, mem[:8], 0, 0) })
		b.add(3, func(e *uring.SQE) { e.Read(fd, mem[8:], 8) })
		b.add(4, func(e *uring.SQE) { e.ReadFixed(fd, b.memory(8), 0, 0) })
		b.add(5, func(e *uring.SQE) { e.Read(uring.Fd(1<<20), b.memory(8), 0) })
		b.add(6, func(e *uring.SQE) { e.Nop() })
		b.submit()
		b.res(2, 1, 8)
		b.res(3, 1, 4)
		b.res(4, 1, no(syscall.EFAULT))
		b.res(5, 1, no(syscall.EBADF))
		b.res(6, 1, 0)
		if string(mem[:12]) != "\x00\x000123456789" {
			b.Errorf("read %q", mem)
		}
	})
}

// TestHookAcceptNeverRun closes a ring whose task work has not run: a connection that the
// kernel would not have accepted leaves no descriptor.
func TestHookAcceptNeverRun(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var c net.Conn
	onHookBench(t, flavours["deferred"], Plan{}, func(b *hookBench) {
		b.want = "closed with an operation in flight" // only a failed ring may be
		raw, _ := l.(*net.TCPListener).SyscallConn()
		_ = raw.Control(func(fd uintptr) {
			b.add(1, func(e *uring.SQE) { e.AcceptMultishot(uring.Fd(int(fd)), syscall.SOCK_CLOEXEC) })
			b.submit()
		})
		if c, err = net.Dial("tcp", l.Addr().String()); err != nil {
			b.Fatal(err)
		}
		ready := []unix.PollFd{{Fd: int32(b.r.FD()), Events: unix.POLLIN}}
		n, err := unix.Poll(ready, 10_000)
		for err == unix.EINTR {
			n, err = unix.Poll(ready, 10_000)
		}
		if n != 1 {
			b.Fatalf("no task work waits: %v", err)
		}
	})
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the connection: %v", err)
	}
}

// TestHookSockets accepts, receives in all ways, and sends more than the socket buffers.
func TestHookSockets(t *testing.T) {
	overFlavours(t, func(b *hookBench) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close()
		raw, _ := l.(*net.TCPListener).SyscallConn()
		_ = raw.Control(func(fd uintptr) {
			b.add(1, func(e *uring.SQE) { e.AcceptMultishot(uring.Fd(int(fd)), syscall.SOCK_CLOEXEC) })
			b.submit()
		})
		for n := range 2 {
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			got := b.last(1, n+1)
			if got.Res < 0 || !got.Has(uring.CQEMore) {
				b.Fatalf("accepted %+v", got)
			}
			_ = syscall.Close(int(got.Res))
		}
		bufs, err := b.r.NewBufRing(uring.BufRingOptions{Group: 7, Entries: 2, BufferSize: 4})
		if err != nil {
			b.Fatal(err)
		}
		x, y := b.pair()
		p := b.memory(8)
		b.add(2, func(e *uring.SQE) { e.Recv(uring.Fd(x), p, sys.MsgDontWait) })
		b.res(2, 1, no(syscall.EAGAIN))
		b.add(3, func(e *uring.SQE) { e.Recv(uring.Fd(x), p, 0) })
		b.submit()
		b.write(y, "abc")
		b.res(3, 1, 3)
		b.add(4, func(e *uring.SQE) { e.RecvMultishot(uring.Fd(x), 0, 7) })
		b.submit()
		b.write(y, "defghi")
		for i, want := range []string{"defg", "hi"} {
			if data, _ := bufs.Take(b.last(4, i+1)); string(data) != want {
				b.Errorf("received %q, want %q", data, want)
			}
		}
		b.res(4, 3, no(syscall.ENOBUFS)) // the kernel has no buffer
		bufs.Recycle(0)
		bufs.Publish()
		if n, err := bufs.Available(); n != 1 || err != nil {
			b.Errorf("%d buffers are available, %v", n, err)
		}
		b.add(5, func(e *uring.SQE) { e.RecvSelect(uring.Fd(x), 0, 0, 7) })
		b.submit()
		_ = syscall.Shutdown(y, syscall.SHUT_WR)
		b.res(5, 1, 0)
		long := b.memory(4 << 20)
		b.add(6, func(e *uring.SQE) { e.Send(uring.Fd(x), long, syscall.MSG_WAITALL) })
		b.submit()
		for n, buf := 0, make([]byte, 1<<16); n < len(long); {
			m, err := syscall.Read(y, buf)
			if m <= 0 {
				b.Fatal(m, err)
			}
			n += m
		}
		b.res(6, 1, int32(len(long)))
		b.add(7, func(e *uring.SQE) { e.CancelWith(uring.CancelOptions{Any: true}) }) // the accept
		b.res(7, 1, 1)
		b.res(1, 3, no(syscall.ECANCELED))
		if err := bufs.Close(); err != nil {
			b.Error(err)
		}
	})
}

// TestHookPolls polls once and multishot, changes polls and cancels them.
func TestHookPolls(t *testing.T) {
	overFlavours(t, func(b *hookBench) {
		x, y := b.pair()
		const in, out = 1, 4
		b.add(1, func(e *uring.SQE) { e.PollAdd(uring.Fd(x), out) })
		b.submit()
		b.res(1, 1, out)
		b.add(2, func(e *uring.SQE) { e.PollAdd(uring.Fd(x), in) })
		b.add(3, func(e *uring.SQE) { e.PollMultishot(uring.Fd(x), in) })
		b.add(4, func(e *uring.SQE) { e.PollAdd(uring.Fd(y), in) })
		b.submit()
		if len(b.got[2])+len(b.got[3])+len(b.got[4]) != 0 {
			b.Errorf("unexpected events: %v", b.got)
		}
		b.write(y, "a")
		b.res(2, 1, in)
		if c := b.res(3, 1, in); !c.Has(uring.CQEMore) {
			b.Errorf("the multishot poll has ended: %+v", c)
		}
		b.write(y, "b") // an edge, although no data was read
		b.res(3, 2, in)
		b.add(5, func(e *uring.SQE) { e.PollUpdate(4, out, 4) })
		b.res(5, 1, 0)
		b.res(4, 1, out)
		b.add(6, func(e *uring.SQE) { e.PollUpdate(4, out, 4) })
		b.res(6, 1, no(syscall.ENOENT))
		b.add(7, func(e *uring.SQE) { e.Cancel(3).SetFlags(uring.SQESkipSuccess) })
		b.submit()
		b.res(3, 3, no(syscall.ECANCELED))
		b.add(8, func(e *uring.SQE) { e.CancelWith(uring.CancelOptions{ByFD: true, FD: uring.Fd(x), All: true}) })
		b.res(8, 1, 0)
		b.add(9, func(e *uring.SQE) { e.PollRemove(3) })
		b.res(9, 1, no(syscall.ENOENT))
		if len(b.got[7]) != 0 {
			b.Errorf("a completion with IOSQE_CQE_SKIP_SUCCESS: %v", b.got[7])
		}
	})
}

// TestHookOverflow posts more completions than the CQ has slots: those that do not fit are
// fetched, in order, and a multishot operation ends.
func TestHookOverflow(t *testing.T) {
	overFlavours(t, func(b *hookBench) {
		x, y := b.pair()
		b.add(100, func(e *uring.SQE) { e.PollMultishot(uring.Fd(x), 1) })
		b.submit()
		n := uint64(b.r.CQEntries() + 5)
		for ud := range n {
			if b.r.SQSpace() == 0 {
				if _, err := b.r.Submit(); err != nil {
					b.Fatal(err)
				}
			}
			b.add(ud, func(e *uring.SQE) { e.Nop() })
		}
		for end := time.Now().Add(10 * time.Second); b.r.Pending() > 0 || b.r.SQFlags()&uring.SQCQOverflow == 0; {
			if _, err := b.r.SubmitAndWaitTimeout(b.r.CQEntries(), time.Millisecond); err != nil || time.Now().After(end) {
				b.Fatal(err)
			}
		}
		b.write(y, "a")
		var order []uint64
		for len(order) < int(n)+1 {
			var c [4]uring.CQE
			for _, c := range c[:b.r.Reap(c[:])] {
				if c.UserData == 100 && c.Has(uring.CQEMore) && b.k.Counts()["full stream"] > 0 {
					b.Errorf("the multishot operation continues: %+v", c)
				}
				order = append(order, c.UserData)
			}
		}
		if b.r.CQOverflow() == 0 {
			b.Error("no completion has overflowed")
		}
		if c := b.r.SQFlags(); c&uring.SQCQOverflow != 0 {
			b.Errorf("SQ flags %x afterwards", c)
		}
	})
}

// TestHookThreads enters from a thread that may not.
func TestHookThreads(t *testing.T) {
	onHookBench(t, flavours["deferred"], Plan{}, func(b *hookBench) {
		b.add(1, func(e *uring.SQE) { e.Nop() })
		failed := make(chan error)
		go func() {
			_, err := b.r.Submit()
			failed <- err
		}()
		if err := <-failed; !errors.Is(err, syscall.EEXIST) {
			b.Errorf("on another thread: %v", err)
		}
		b.res(1, 1, 0)
	})
}

// TestHookDescriptor polls the descriptor of a ring, and waits with a timeout.
func TestHookDescriptor(t *testing.T) {
	overFlavours(t, func(b *hookBench) {
		readable := func() bool {
			for {
				n, errno := sys.PollNow([]sys.PollFD{{Fd: int32(b.r.FD()), Events: 1}})
				if errno == 0 { // without a signal mask
					return n > 0
				}
			}
		}
		if _, err := b.r.SubmitAndWaitTimeout(1, time.Microsecond); err != nil || readable() {
			b.Errorf("the poll of an idle ring: %v, %v", err, readable())
		}
		b.add(1, func(e *uring.SQE) { e.Nop() })
		b.submit()
		if !readable() {
			b.Error("a completion is there, and the poll reports nothing")
		}
		b.res(1, 1, 0)
		if _, err := b.r.SubmitAndWaitTimeout(1, time.Microsecond); err != nil || readable() {
			b.Errorf("the poll after Reap: %v, %v", err, readable())
		}
	})
}

// TestHookRestricted checks that a restricted ring refuses other calls.
func TestHookRestricted(t *testing.T) {
	o := uring.Options{Entries: 4, Restrict: &uring.Restrictions{Ops: []uring.Op{uring.OpNop}}}
	onHookBench(t, o, Plan{}, func(b *hookBench) {
		x, _ := b.pair()
		b.add(1, func(e *uring.SQE) { e.Nop() })
		b.add(2, func(e *uring.SQE) { e.PollAdd(uring.Fd(x), 1) })
		b.add(3, func(e *uring.SQE) { e.Nop().SetFlags(uring.SQEAsync) })
		b.submit()
		b.res(1, 1, 0)
		b.res(2, 1, no(syscall.EACCES))
		b.res(3, 1, no(syscall.EACCES))
		if err := b.r.RegisterBuffers([][]byte{make([]byte, 8)}); !errors.Is(err, syscall.EACCES) {
			b.Errorf("a call that is not permitted: %v", err)
		}
	})
}

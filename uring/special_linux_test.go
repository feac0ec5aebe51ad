// SPDX-License-Identifier: MIT

package uring_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// TestReadsThatEndShort reads with a buffer larger than one record, or than the
// content of a pipe: the read ends short, and does not wait for more.
func TestReadsThatEndShort(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		event := ctlEventFD(t)
		timer, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC)
		ctlOK(t, "timerfd", err)
		defer ctlClose(t, timer)
		rd, wr := osPipe(t)
		tick := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(time.Millisecond))}
		for what, file := range map[string]struct {
			fd    uring.FD
			size  int
			begin func()
		}{
			"eventfd": {uring.Fd(event), 8, func() { ctlWrite(t, event, binary.NativeEndian.AppendUint64(nil, 1)) }},
			"timerfd": {uring.Fd(timer), 8, func() { ctlOK(t, "settime", unix.TimerfdSettime(timer, 0, &tick, nil)) }},
			"pipe":    {fdOf(rd), 3, func() { write(t, wr, "abc") }},
		} {
			for _, flags := range []uring.SQEFlags{0, uring.SQEAsync} {
				for _, early := range []bool{true, false} {
					if early {
						file.begin()
					}
					buf := make([]byte, 64)
					push(t, r).Read(file.fd, buf, 0).SetFlags(flags).SetUserData(1)
					if !early {
						_, err := r.Submit()
						ctlOK(t, "submit", err)
						file.begin()
					}
					if c := await(t, r, 1); int(c.Res) != file.size {
						t.Errorf("%s, flags %#x, data before the read %v: result %d, %v", what, flags, early, c.Res, c.Err())
					}
					runtime.KeepAlive(buf)
				}
			}
		}
	})
}

// TestNonblockingFilesAreWaitedFor reads from an empty FIFO and an empty socket that are
// non-blocking. Both reads wait, unless the operation on the socket has MSG_DONTWAIT.
func TestNonblockingFilesAreWaitedFor(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		rd, wr := osPipe(t)
		ctlOK(t, "nonblock", unix.SetNonblock(int(rd.Fd()), true))
		a, b := unixPair(t, unix.SOCK_STREAM)
		buf := make([]byte, 8)
		keep(t, buf)
		push(t, r).Read(fdOf(rd), buf, 0).SetUserData(1)
		wantQuiet(t, r)
		write(t, wr, "fifo")
		wantRes(t, await(t, r, 1), 4)

		wantErrno(t, complete(t, r, func(e *uring.SQE) { e.Recv(on(a), buf, unix.MSG_DONTWAIT) }), syscall.EAGAIN)
		ctlOK(t, "nonblock", unix.SetNonblock(a.Int(), false))
		wantErrno(t, complete(t, r, func(e *uring.SQE) { e.Recv(on(a), buf, unix.MSG_DONTWAIT) }), syscall.EAGAIN)
		push(t, r).Recv(on(a), buf, 0).SetUserData(2)
		wantQuiet(t, r)
		sockWrite(t, b, "socket")
		wantRes(t, await(t, r, 2), 6)
	})
}

// TestEndOfAPipe closes the other end of a pipe and of a socket while reads and polls wait,
// with and without data before the end.
func TestEndOfAPipe(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		for _, last := range []string{"", "last words"} {
			rd, wr := osPipe(t)
			buf := make([]byte, 32)
			keep(t, buf)
			push(t, r).Read(fdOf(rd), buf, 0).SetUserData(1)
			wantQuiet(t, r)
			if last != "" {
				write(t, wr, last)
			}
			wr.Close()
			wantRes(t, await(t, r, 1), len(last))
			wantRes(t, complete(t, r, func(e *uring.SQE) { e.Read(fdOf(rd), buf, 0) }), 0)
			c := complete(t, r, func(e *uring.SQE) { e.PollAdd(fdOf(rd), pollIn) })
			if c.Res&unix.POLLHUP == 0 {
				t.Errorf("the poll completed with %#x", c.Res)
			}
		}
	})
}

// TestSocketsAsFiles reads and writes sockets, which have no position, with all kinds of
// offsets. A read that waits does not block the write whose data it receives.
func TestSocketsAsFiles(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		a, b := tcpPair(t)
		in, out := make([]byte, 16), []byte("through")
		iov := []uring.Iovec{uring.NewIovec(in[:3]), uring.NewIovec(in[3:])}
		keep(t, in, out, iov)
		for i, off := range []int64{0, uring.CurrentPosition, 1 << 40} {
			flags := []uring.SQEFlags{0, uring.SQEAsync}[i%2]
			push(t, r).Readv(on(a), iov, off, 0).SetFlags(flags).SetUserData(1)
			push(t, r).Write(on(b), out, off).SetFlags(flags).SetUserData(2)
			m := byUserData(t, r, 2)
			if m[1].Errno() == syscall.ESPIPE && m[2].Errno() == syscall.ESPIPE {
				continue // no offset at all, as pread(2) requires of sockets
			}
			wantRes(t, m[2], len(out))
			wantRes(t, m[1], len(out))
			if string(in[:len(out)]) != string(out) {
				t.Errorf("received %q", in)
			}
		}
	})
}

// TestMultishotSeesDataAndTheEnd sends and shuts down immediately afterwards: the receive
// must deliver the data and then the end. On Linux 6.18 a receive from a Unix stream may
// miss the end: see [uring.SQE.RecvMultishot].
func TestMultishotSeesDataAndTheEnd(t *testing.T) {
	ringtest.NeedKernel(t, "multishot receive", "6.0")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		group := bufRing(t, r, 3, 4, 32)
		for round := range ringtest.Rounds(60, 10) {
			a, b := tcpPair(t)
			arm := func() { push(t, r).RecvMultishot(on(a), 0, 3).SetUserData(1) }
			arm()
			if round%2 == 0 {
				wantQuiet(t, r)
			}
			go func() { // from another thread
				unix.Write(b.Int(), []byte("data"))
				unix.Shutdown(b.Int(), unix.SHUT_WR)
			}()
			var got []byte
			for {
				c := await(t, r, 1)
				if c.Res < 0 {
					t.Fatalf("round %d: after %q: %v", round, got, c.Err())
				}
				if c.Res == 0 {
					break
				}
				got = append(got, take(t, group, c)...)
				if !c.Has(uring.CQEMore) {
					arm()
				}
			}
			if string(got) != "data" {
				t.Fatalf("round %d: received %q before the end", round, got)
			}
			a.Close()
			b.Close()
		}
		ctlOK(t, "close the group", group.Close())
	})
}

// TestManyPolls waits for many descriptors, which become ready in another order, twice
// each, and ends the rest with one cancellation.
func TestManyPolls(t *testing.T) {
	ringtest.NeedKernel(t, "cancelling all", "5.19")
	n := ringtest.Rounds(300, 60)
	ringtest.NeedFiles(t, uint64(n)+100)
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		fds := make([]int, n)
		for i := range fds {
			fds[i] = ctlEventFD(t)
			push(t, r).PollMultishot(uring.Fd(fds[i]), pollIn).SetUserData(uint64(i))
		}
		wantQuiet(t, r)
		one := binary.NativeEndian.AppendUint64(nil, 1)
		for range 2 {
			seen := map[uint64]bool{}
			for i := range n {
				ctlWrite(t, fds[i*7%n], one)
			}
			for range n {
				c := ringtest.Await(t, r, 1)[0]
				if c.Res < 0 || seen[c.UserData] {
					t.Fatalf("completion %+v (%v)", c, c.Err())
				}
				seen[c.UserData] = true
				ctlEventCount(t, fds[c.UserData])
				if !c.Has(uring.CQEMore) { // the CQ had overflowed
					push(t, r).PollMultishot(uring.Fd(fds[c.UserData]), pollIn).SetUserData(c.UserData)
				}
			}
			wantQuiet(t, r)
		}
		push(t, r).CancelWith(uring.CancelOptions{Any: true, All: true}).SetUserData(1 << 40)
		left := map[uint64]bool{}
		for _, c := range ringtest.Await(t, r, n+1) {
			left[c.UserData] = true
			if c.UserData == 1<<40 {
				wantRes(t, c, n)
			}
		}
		if len(left) != n+1 {
			t.Errorf("%d of %d ended", len(left)-1, n)
		}
	})
}

// TestRingsThatWatchThemselves polls a ring with itself, a ring's eventfd with that ring,
// and two rings with each other. None of these may complete without end or keep the rings
// from closing.
func TestRingsThatWatchThemselves(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		event := ctlEventFD(t)
		ctlOK(t, "eventfd", r.RegisterEventFD(event, false))
		push(t, r).PollMultishot(uring.Fd(event), pollIn).SetUserData(1)
		push(t, r).PollMultishot(uring.Fd(r.FD()), pollIn).SetUserData(2)
		other := ringtest.Open(t, &uring.Options{Entries: 4})
		push(t, r).PollMultishot(uring.Fd(other.FD()), pollIn).SetUserData(3)
		push(t, other).PollMultishot(uring.Fd(r.FD()), pollIn).SetUserData(4)
		ctlSubmit(t, other, 1)
		total, nops, buf := 0, 0, make([]uring.CQE, 32)
		for range 50 {
			push(t, r).Nop().SetUserData(5)
			_, err := r.Submit()
			ctlOK(t, "submit", err)
			n := r.Reap(buf)
			for _, c := range buf[:n] {
				if c.UserData == 5 {
					nops++
				}
			}
			total += n
			other.Reap(buf)
		}
		for nops < 50 {
			for _, c := range ringtest.Await(t, r, 1) {
				if total++; c.UserData == 5 {
					nops++
				}
			}
			if total > 5000 {
				t.Fatal("each completion causes another, without end")
			}
		}
		ctlOK(t, "unregister", r.UnregisterEventFD())
	})
}

// TestEventFDOfTwoRings registers one eventfd with two rings.
func TestEventFDOfTwoRings(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		event, other := ctlEventFD(t), ringtest.Open(t, nil)
		ctlOK(t, "register", r.RegisterEventFD(event, false))
		ctlOK(t, "register with the other", other.RegisterEventFD(event, false))
		ctlNops(t, r, 1, 1)
		ctlNops(t, other, 1, 1)
		var n uint64
		ctlUntil(t, "an event from each ring", func() bool { n += ctlEventCount(t, event); return n >= 2 })
		ctlOK(t, "unregister", r.UnregisterEventFD())
		ctlNops(t, other, 1, 1)
		if n := ctlEventCount(t, event); n != 1 {
			t.Errorf("%d events of the other ring", n)
		}
		ctlOK(t, "unregister", other.UnregisterEventFD())
	})
}

// TestWorkersResolveNamesAsTheProcess opens names below /proc/self and /proc/thread-self in
// a worker thread of the kernel.
func TestWorkersResolveNamesAsTheProcess(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		path, err := uring.NewPath("/proc/self/stat")
		ctlOK(t, "path", err)
		buf := make([]byte, 4096)
		want := fmt.Appendf(nil, "%d (", os.Getpid())
		for _, flags := range []uring.SQEFlags{0, uring.SQEAsync} {
			c := complete(t, r, func(e *uring.SQE) {
				e.OpenAt(uring.AtCWD, path, unix.O_RDONLY|unix.O_CLOEXEC, 0).SetFlags(flags)
			})
			if c.Res < 0 {
				t.Fatal(c.Err())
			}
			opened := c.Res
			fd := uring.Fd(int(opened))
			c = complete(t, r, func(e *uring.SQE) { e.Read(fd, buf, 0).SetFlags(flags) })
			if c.Res <= 0 || !bytes.HasPrefix(buf, want) {
				t.Errorf("flags %#x: %d, %q, want %q", flags, c.Res, buf[:max(0, c.Res)], want)
			}
			wantRes(t, complete(t, r, func(e *uring.SQE) { e.Close(int(opened)) }), 0)
		}
	})
}

// TestFilesWithoutIterators reads a file of /proc into registered memory: the file system
// copies such a file through a user pointer, which the kernel must refuse or emulate.
func TestFilesWithoutIterators(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		f, err := os.Open("/proc/self/comm")
		ctlOK(t, "open", err)
		defer f.Close()
		want, err := os.ReadFile("/proc/self/comm")
		ctlOK(t, "read", err)
		buf := registerBuffer(t, r, 4096)
		c := complete(t, r, func(e *uring.SQE) { e.ReadFixed(fdOf(f), buf[10:100], 0, 0) })
		if c.Res >= 0 && !bytes.Equal(buf[10:10+int(c.Res)], want) {
			t.Errorf("%d bytes, %q, want %q", c.Res, buf[10:100], want)
		}
		if c.Res < 0 && c.Errno() != syscall.EINVAL && c.Errno() != syscall.EFAULT {
			t.Errorf("%v", c.Err())
		}
		if buf[9] != 0 || buf[100] != 0 {
			t.Error("the read wrote outside of its buffer")
		}
	})
}

// TestTerminal writes to and reads from a pseudo-terminal, which has two wait queues.
func TestTerminal(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		leader, follower := terminal(t)
		in := make([]byte, 64)
		keep(t, in)
		push(t, r).Read(fdOf(leader), in, 0).SetUserData(1)
		wantQuiet(t, r)
		out := []byte("a line\n")
		wantRes(t, complete(t, r, func(e *uring.SQE) { e.Write(fdOf(follower), out, 0).SetUserData(0) }), len(out))
		c := await(t, r, 1)
		if c.Res <= 0 || !bytes.HasPrefix([]byte("a line\r\n"), in[:c.Res]) {
			t.Errorf("%d, %v: %q", c.Res, c.Err(), in)
		}
	})
}

// terminal opens both sides of a pseudo-terminal.
func terminal(t *testing.T) (leader, follower *os.File) {
	t.Helper()
	leader, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("needs /dev/ptmx: %v", err)
	}
	t.Cleanup(func() { leader.Close() })
	fd := int(leader.Fd())
	ctlOK(t, "unlock", unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	ctlOK(t, "number", err)
	follower, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("needs /dev/pts: %v", err)
	}
	t.Cleanup(func() { follower.Close() })
	return leader, follower
}

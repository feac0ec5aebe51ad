// SPDX-License-Identifier: MIT

package uring_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	kernelOp(uring.OpEpollCtl, func(t *testing.T) {
		ringtest.NeedOp(t, uring.OpEpollCtl, "5.6")
		ringtest.OverFlavours(t, kernelEpollCtl)
	})
	kernelOp(uring.OpEpollWait, func(t *testing.T) {
		ringtest.NeedOp(t, uring.OpEpollWait, "6.15")
		ringtest.OverFlavours(t, kernelEpollWait)
	})
}

func openEpoll(t testing.TB) *sys.FD {
	t.Helper()
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	return own(t, fd)
}

// wantEvents compares the ready events of an epoll instance with the mask and data of one
// event; a mask of 0 means no events.
func wantEvents(t testing.TB, ep *sys.FD, mask uint32, data uint64) {
	t.Helper()
	var ev [2]unix.EpollEvent
	n, err := unix.EpollWait(ep.Int(), ev[:], 0)
	switch {
	case err != nil:
		t.Fatal(err)
	case mask == 0 && n == 0:
	case n != 1 || ev[0].Events != mask || ev[0].Fd != int32(data) || ev[0].Pad != int32(data>>32):
		t.Errorf("events %+v, want %#x with %#x", ev[:n], mask, data)
	}
}

func kernelEpollCtl(t *testing.T, r *uring.Ring) {
	ep := openEpoll(t)
	_, wr := osPipe(t)
	fd := int(wr.Fd())
	in, out := uring.NewEpollEvent(unix.EPOLLIN, 5), uring.NewEpollEvent(unix.EPOLLOUT, 0x1122334455667788)
	keep(t, &in, &out)
	ctl := func(ep uring.FD, op int, ev *uring.EpollEvent) uring.CQE {
		return ringtest.Do(t, r, func(e *uring.SQE) { e.EpollCtl(ep, op, fd, ev) })
	}
	wantErrno(t, ctl(on(ep), unix.EPOLL_CTL_MOD, &in), unix.ENOENT)
	wantRes(t, ctl(on(ep), unix.EPOLL_CTL_ADD, &in), 0)
	wantEvents(t, ep, 0, 0)
	wantErrno(t, ctl(on(ep), unix.EPOLL_CTL_ADD, &in), unix.EEXIST)
	wantRes(t, ctl(on(ep), unix.EPOLL_CTL_MOD, &out), 0)
	wantEvents(t, ep, unix.EPOLLOUT, 0x1122334455667788)
	wantRes(t, ctl(on(ep), unix.EPOLL_CTL_DEL, nil), 0)
	wantEvents(t, ep, 0, 0)
	wantErrno(t, ctl(fdOf(wr), unix.EPOLL_CTL_ADD, &in), unix.EINVAL)

	// A slot must not be mistaken for the descriptor with the same number.
	registerFiles(t, r, ep.Int(), ep.Int())
	for _, fd := range []uring.FD{uring.FixedFd(0), uring.FixedFd(ep.Int())} {
		wantErrno(t, ctl(fd, unix.EPOLL_CTL_ADD, &out), unix.EBADF)
	}
	wantEvents(t, ep, 0, 0)
}

func kernelEpollWait(t *testing.T, r *uring.Ring) {
	ep := openEpoll(t)
	rd, wr := osPipe(t)
	for fd, ev := range map[int]unix.EpollEvent{
		int(rd.Fd()): {Events: unix.EPOLLIN, Fd: 1},
		int(wr.Fd()): {Events: unix.EPOLLOUT | unix.EPOLLET, Fd: 2, Pad: 3},
	} {
		if err := unix.EpollCtl(ep.Int(), unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
			t.Fatal(err)
		}
	}
	events := make([]uring.EpollEvent, 4)
	keep(t, events)
	wait := func(fd uring.FD, events []uring.EpollEvent) {
		push(t, r).EpollWait(fd, events).SetUserData(1)
	}
	wait(on(ep), events)
	wantRes(t, await(t, r, 1), 1)
	if events[0].Events != unix.EPOLLOUT || events[0].Data() != 3<<32|2 {
		t.Errorf("event %+v", events[0])
	}
	registerFiles(t, r, ep.Int())
	wait(uring.FixedFd(0), events) // the edge was consumed
	wantQuiet(t, r)
	write(t, wr, "x")
	c := await(t, r, 1)
	found := map[uint64]uint32{}
	for _, ev := range events[:max(c.Res, 0)] {
		found[ev.Data()] = ev.Events
	}
	if found[1] != unix.EPOLLIN {
		t.Errorf("events %v with %+v (%v)", found, c, c.Err())
	}
	for name, want := range map[string]struct {
		fd     uring.FD
		events []uring.EpollEvent
	}{"not epoll": {fdOf(rd), events}, "no room": {on(ep), nil}} {
		wait(want.fd, want.events)
		if c := await(t, r, 1); c.Errno() != unix.EINVAL {
			t.Errorf("%s: %+v (%v)", name, c, c.Err())
		}
	}
}

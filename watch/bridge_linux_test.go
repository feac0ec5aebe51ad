// SPDX-License-Identifier: MIT

package watch

import (
	"errors"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// overBridges runs test with EPOLL_WAIT, where the kernel has it, and without.
func overBridges(t *testing.T, test func(t *testing.T, r *uring.Ring, b *EpollBridge, epfd int)) {
	for _, native := range []bool{true, false} {
		name := map[bool]string{true: "wait", false: "poll"}[native]
		t.Run(name, func(t *testing.T) {
			if native {
				ringtest.NeedOp(t, uring.OpEpollWait, "6.15")
			}
			ringtest.NeedOp(t, uring.OpEpollCtl, "5.6")
			r := ringtest.Open(t, &uring.Options{Entries: 8})
			ep, err := sys.EpollCreate()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { ep.Close() })
			b, err := NewEpollBridge(r, ep.Int(), 4)
			if err != nil {
				t.Fatal(err)
			}
			if b.native = native; !native {
				b.plain = make([]sys.EpollEvent, 4)
			}
			test(t, r, b, ep.Int())
		})
	}
}

func ctl(t *testing.T, b *EpollBridge, op, fd int, events uint32, data, ud uint64) {
	t.Helper()
	if err := b.Ctl(op, fd, uring.NewEpollEvent(events, data), ud); err != nil {
		t.Fatal(err)
	}
}

// TestBridgeDrivesEpoll changes an epoll instance and waits for it through a
// ring, while the program goes on using it.
func TestBridgeDrivesEpoll(t *testing.T) {
	overBridges(t, func(t *testing.T, r *uring.Ring, b *EpollBridge, epfd int) {
		var fds []int
		for i := range 3 {
			c, err := sys.Counter()
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			fds = append(fds, c.Int())
			ctl(t, b, unix.EPOLL_CTL_ADD, c.Int(), unix.EPOLLIN|unix.EPOLLET, uint64(i)<<40|7, uint64(i))
		}
		ctl(t, b, unix.EPOLL_CTL_ADD, fds[0], unix.EPOLLIN, 0, 3)
		for _, c := range ringtest.Await(t, r, 4) {
			if want := map[bool]syscall.Errno{true: syscall.EEXIST}[c.UserData == 3]; c.Errno() != want {
				t.Errorf("change %d: %+v", c.UserData, c)
			}
		}
		for round := range 3 {
			if err := b.Wait(9); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Submit(); err != nil {
				t.Fatal(err)
			}
			for _, fd := range fds[1:] {
				if _, err := unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 1}); err != nil {
					t.Fatal(err)
				}
			}
			seen := map[uint64]bool{}
			for len(seen) < 2 {
				c := ringtest.Await(t, r, 1)[0]
				evs, err := b.Events(c)
				if err != nil || c.UserData != 9 {
					t.Fatalf("%+v: %v", c, err)
				}
				for _, ev := range evs {
					seen[ev.Data()] = true
				}
				if len(seen) < 2 {
					if err := b.Wait(9); err != nil {
						t.Fatal(err)
					}
				}
			}
			if !seen[1<<40|7] || !seen[2<<40|7] {
				t.Errorf("round %d: events %v", round, seen)
			}
		}
	})
}

// TestBridgeEnds cancels a wait and finds a full queue.
func TestBridgeEnds(t *testing.T) {
	overBridges(t, func(t *testing.T, r *uring.Ring, b *EpollBridge, _ int) {
		if err := b.Wait(1); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Submit(); err != nil {
			t.Fatal(err)
		}
		r.SQE().Cancel(1, 0).SetUserData(2)
		for _, c := range ringtest.Await(t, r, 2) {
			if c.UserData == 2 {
				continue
			}
			if evs, err := b.Events(c); !errors.Is(err, syscall.ECANCELED) || evs != nil {
				t.Errorf("%v, %v", evs, err)
			}
		}
		for i := range r.SQEntries() {
			ctl(t, b, unix.EPOLL_CTL_DEL, 1<<20, 0, 0, uint64(i))
		}
		for _, err := range []error{b.Wait(1), b.Ctl(unix.EPOLL_CTL_DEL, 1<<20, uring.EpollEvent{}, 1)} {
			if !errors.Is(err, uring.ErrSQFull) {
				t.Errorf("a full queue: %v", err)
			}
		}
		for _, c := range ringtest.Await(t, r, r.SQEntries()) {
			if c.Errno() != syscall.EBADF {
				t.Errorf("%+v", c)
			}
		}
	})
	if _, err := NewEpollBridge(nil, 0, 0); err == nil {
		t.Error("a bridge without room")
	}
}

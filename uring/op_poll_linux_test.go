// SPDX-License-Identifier: MIT

package uring_test

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// openEventFD returns a blocking eventfd; post adds 1 to an eventfd.
func openEventFD(t testing.TB) *sys.FD {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	return own(t, fd)
}

func post(t testing.TB, event *sys.FD) {
	t.Helper()
	sockWrite(t, event, string(binary.NativeEndian.AppendUint64(nil, 1)))
}

// TestPollHighBits uses poll bits above the 16 of the oldest kernels, and POLLPRI.
func TestPollHighBits(t *testing.T) {
	t.Run("exclusive", func(t *testing.T) {
		ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
			event := openEventFD(t)
			for id := range uint64(2) {
				push(t, r).PollAdd(on(event), unix.EPOLLIN|unix.EPOLLEXCLUSIVE).SetUserData(id)
				wantQuiet(t, r)
			}
			post(t, event)
			c := ringtest.Await(t, r, 1)[0]
			wantRes(t, c, unix.EPOLLIN)
			wantQuiet(t, r) // the other poll still waits
			cancelAll(t, r, 1-c.UserData)
		})
	})
	t.Run("hangup", func(t *testing.T) {
		ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
			a, b := tcpPair(t)
			push(t, r).PollAdd(on(b), unix.POLLRDHUP).SetUserData(1)
			wantQuiet(t, r)
			if err := unix.Shutdown(a.Int(), unix.SHUT_WR); err != nil {
				t.Fatal(err)
			}
			wantRes(t, await(t, r, 1), unix.POLLRDHUP)
		})
	})
	t.Run("urgent", func(t *testing.T) {
		ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
			a, b := tcpPair(t)
			push(t, r).PollAdd(on(b), unix.POLLIN|unix.POLLPRI).SetUserData(1)
			wantQuiet(t, r)
			if err := unix.Sendto(a.Int(), []byte("!"), unix.MSG_OOB, nil); err != nil {
				t.Fatal(err)
			}
			if c := await(t, r, 1); c.Res&unix.POLLPRI == 0 {
				t.Errorf("urgent data completes a poll with %#x", c.Res)
			}
		})
	})
}

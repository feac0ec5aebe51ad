// SPDX-License-Identifier: MIT

package uring_test

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// TestReadMultishotEventFD adds up the counts read from an eventfd.
func TestReadMultishotEventFD(t *testing.T) {
	ringtest.NeedOp(t, uring.OpReadMultishot, "6.7")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		event := openEventFD(t)
		group := bufRing(t, r, 3, 2, 8)
		registerFiles(t, r, event.Int())
		arm := func() { push(t, r).ReadMultishot(uring.FixedFd(0), 3).SetUserData(1) }
		arm()
		runTaskWork(t, r)
		const posts = 10
		for range posts {
			post(t, event)
			runTaskWork(t, r)
		}
		total := uint64(0)
		for total < posts {
			c := await(t, r, 1)
			if c.Errno() != unix.ENOBUFS {
				total += binary.NativeEndian.Uint64(take(t, group, c))
			}
			if !c.Has(uring.CQEMore) {
				arm()
			}
		}
		if total != posts {
			t.Errorf("counted %d, want %d", total, posts)
		}
		cancelAll(t, r, 1)

		short := bufRing(t, r, 4, 1, 4)
		post(t, event)
		c := ringtest.Do(t, r, func(e *uring.SQE) { e.ReadMultishot(on(event), short.Group()) })
		wantErrno(t, c, unix.EINVAL) // a read of an eventfd needs 8 bytes
		wantMore(t, c, false)
	})
}

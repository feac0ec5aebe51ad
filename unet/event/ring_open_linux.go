// SPDX-License-Identifier: MIT

package event

import (
	"errors"

	"github.com/ringside-io/ringside/internal/ringloop"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// start implements driver: it opens the ring and what belongs to it.
func (l *ringLoop) start() (err error) {
	o := &l.server.opts
	u := uring.Options{Entries: sqEntries, CQEntries: cqEntries, Clamp: true, SubmitAll: true, NoIOWait: true}
	switch {
	case l.server.threads:
		u.DeferTaskrun, u.Disabled = true, true // its thread enables it
	case o.SQPoll:
		u.SQPoll = true
	default:
		u.CoopTaskrun, u.TaskrunFlag = true, o.Spin > 0
	}
	if o.Restrict {
		u.Restrict = &ringRestrictions
	}
	l.ring, err = ringloop.Open(u, fewestCQ)
	if err != nil {
		return err
	}
	if l.slab, err = sys.MapAnon(o.Buffers*o.BufferSize, false); err == nil {
		l.bufs, err = l.ring.NewBufRing(uring.BufRingOptions{Entries: o.Buffers, BufferSize: o.BufferSize,
			Memory: l.slab.Bytes()[:o.Buffers*o.BufferSize]})
	}
	switch {
	case err != nil:
	case l.server.threads:
		l.bell, err = sys.EventFD()
	default:
		l.poller, err = ringloop.NewPoller(l.ring.FD(), "io_uring")
	}
	if err != nil {
		return errors.Join(err, l.ring.Close(), l.slab.Unmap())
	}
	l.post(l.armAccept)
	return nil
}

// undo implements driver.
func (l *ringLoop) undo() error { return errors.Join(l.closeRing(), l.slab.Unmap()) }

// closeRing closes the ring and what wakes the loop, and leaves the buffers.
func (l *ringLoop) closeRing() error {
	if l.bell != nil {
		return errors.Join(l.ring.Close(), l.bell.Close())
	}
	return errors.Join(l.poller.Close(), l.ring.Close())
}

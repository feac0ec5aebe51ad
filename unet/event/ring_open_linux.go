// SPDX-License-Identifier: MIT

package event

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

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
	l.ring, err = openSmaller(&u)
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
		err = l.poll()
	}
	if err != nil {
		return errors.Join(err, l.ring.Close(), l.slab.Unmap())
	}
	l.post(l.armAccept)
	return nil
}

// openSmaller opens a ring, a smaller one where the memlock limit asks for it.
func openSmaller(o *uring.Options) (*uring.Ring, error) {
	for {
		r, err := uring.Open(*o)
		if !errors.Is(err, syscall.ENOMEM) || o.Entries <= 4*reserve {
			return r, err
		}
		o.Entries, o.CQEntries = o.Entries/2, o.CQEntries/2
	}
}

// poll gives a duplicate of the ring's descriptor to the netpoller, because an
// os.File closes what it owns.
func (l *ringLoop) poll() error {
	fd, err := sys.Dup(l.ring.FD())
	if err != nil {
		return err
	}
	if err := syscall.SetNonblock(fd, true); err != nil { // what makes os poll it
		return errors.Join(os.NewSyscallError("fcntl", err), syscall.Close(fd))
	}
	l.file = os.NewFile(uintptr(fd), "io_uring")
	if err := l.file.SetReadDeadline(time.Time{}); err != nil {
		return errors.Join(fmt.Errorf("poll the ring's descriptor: %w", err), l.file.Close())
	}
	if l.raw, err = l.file.SyscallConn(); err != nil {
		return errors.Join(err, l.file.Close())
	}
	return nil
}

// undo implements driver.
func (l *ringLoop) undo() error { return errors.Join(l.closeRing(), l.slab.Unmap()) }

// closeRing closes the ring and what wakes the loop, and leaves the buffers.
func (l *ringLoop) closeRing() error {
	if l.bell != nil {
		return errors.Join(l.ring.Close(), l.bell.Close())
	}
	return errors.Join(l.file.Close(), l.ring.Close())
}

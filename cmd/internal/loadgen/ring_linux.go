// SPDX-License-Identifier: MIT

package loadgen

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/uring"
)

// ringDriver receives and sends through a ring.
type ringDriver struct {
	ring *uring.Ring
	bufs *uring.BufRing
	cqes [256]uring.CQE
	msgs []byte // the message of each connection, read by the kernel
}

const (
	ringEntries = 1024
	ringBuffers = 4096
	ringBufSize = 4096
	// sendBit marks the user data of sends; the rest is the connection.
	sendBit = 1 << 32
)

// openRing opens the ring if possible.
func (g *generator) openRing() {
	for _, have := range []func() error{features.HaveMultishotRecv, features.HaveBufRing, features.HaveDeferTaskrun} {
		if have() != nil {
			return
		}
	}
	r, err := uring.Open(uring.Options{
		Entries: ringEntries, CQEntries: 8 * ringEntries, DeferTaskrun: true, SubmitAll: true, NoIOWait: true,
	})
	if err != nil {
		return
	}
	bufs, err := r.NewBufRing(uring.BufRingOptions{Entries: ringBuffers, BufferSize: ringBufSize})
	if err != nil {
		_ = r.Close() // epoll is used instead
		return
	}
	_ = r.RegisterRingFD() // makes calls cheaper
	g.ring = &ringDriver{ring: r, bufs: bufs, msgs: make([]byte, len(g.msg)*len(g.conns))}
}

// closeRing ends operations in flight, so that the kernel does not write into freed memory, and
// closes the ring. It shuts the connections down, which ends their receives. Cancelling each of ten
// thousand receives would take seconds.
func (g *generator) closeRing() error {
	if g.ring == nil {
		return nil
	}
	receiving := 0
	for i := range g.conns {
		_ = unix.Shutdown(g.conns[i].fd, unix.SHUT_RDWR)
		if g.conns[i].armed {
			receiving++
		}
	}
	r := g.ring.ring
	var err error
	for vain := 0; receiving > 0 && vain < 100 && err == nil; {
		_, err = r.SubmitAndWaitTimeout(1, time.Millisecond)
		n := r.Reap(g.ring.cqes[:])
		if vain++; n > 0 {
			vain = 0
		}
		for _, e := range g.ring.cqes[:n] {
			if e.UserData&sendBit == 0 && !e.Has(uring.CQEMore) {
				receiving--
			}
		}
	}
	return errors.Join(err, r.Close())
}

// by returns the name of the mechanism.
func (g *generator) by() string {
	if g.ring != nil {
		return "io_uring"
	}
	return "epoll"
}

// entry returns a free SQE.
func (d *ringDriver) entry() (*uring.SQE, error) {
	e := d.ring.SQE()
	if e == nil {
		if _, err := d.ring.SubmitNoWait(); err != nil {
			return nil, err
		}
		if e = d.ring.SQE(); e == nil {
			return nil, uring.ErrSQFull
		}
	}
	return e, nil
}

// sendRing queues the message of a connection. The previous message has come back completely, so
// the kernel no longer reads its memory.
func (g *generator) sendRing(c *conn) error {
	d, i := g.ring, c.i
	msg := d.msgs[i*len(g.msg) : (i+1)*len(g.msg)]
	if !c.armed {
		c.armed = true
		copy(msg, g.msg)
		if err := g.arm(c); err != nil {
			return err
		}
	}
	g.number(msg, c)
	e, err := d.entry()
	if err != nil {
		return err
	}
	e.Send(uring.Fd(c.fd), msg, unix.MSG_NOSIGNAL|unix.MSG_WAITALL).SetUserData(sendBit | uint64(i))
	return nil
}

func (g *generator) arm(c *conn) error {
	e, err := g.ring.entry()
	if err == nil {
		e.RecvMultishot(uring.Fd(c.fd), 0, g.ring.bufs.Group()).SetUserData(uint64(c.i))
	}
	return err
}

// pumpRing exchanges messages for d.
func (g *generator) pumpRing(ctx context.Context, d time.Duration) error {
	r := g.ring.ring
	for end := time.Since(g.base) + d; time.Since(g.base) < end && !g.drained(); {
		// One call submits and waits. The timeout lets an idle loop check the clock and the
		// context.
		if _, err := r.SubmitAndWaitTimeout(1, 100*time.Millisecond); err != nil {
			return err
		}
		n := r.Reap(g.ring.cqes[:])
		if n == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for i := range n {
			if err := g.complete(&g.ring.cqes[i]); err != nil {
				return err
			}
		}
		g.ring.bufs.Publish()
	}
	return ctx.Err()
}

// complete handles one completion.
func (g *generator) complete(e *uring.CQE) error {
	c := &g.conns[uint32(e.UserData)]
	if e.UserData&sendBit != 0 {
		if int(e.Res) != len(g.msg) {
			return fmt.Errorf("send: %d of %d bytes: %w", e.Res, len(g.msg), e.Err())
		}
		return nil
	}
	data, _ := g.ring.bufs.Take(*e)
	var err error
	if e.Res > 0 {
		_, err = g.take(c, data)
	}
	if e.Has(uring.CQEBuffer) {
		g.ring.bufs.Recycle(e.BufferID())
	}
	switch {
	case err != nil:
		return err
	case e.Res == 0:
		return errors.New("the server closed a connection")
	case e.Res < 0 && e.Errno() != syscall.ENOBUFS:
		return fmt.Errorf("receive: %w", e.Err())
	case !e.Has(uring.CQEMore):
		return g.arm(c)
	}
	return nil
}

// SPDX-License-Identifier: MIT

package unet

import (
	"io"
	"net"
	"sync"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// maxParts is how many buffers one call takes (IOV_MAX).
const maxParts = 1024

// vector is the argument of a call with several buffers.
type vector struct {
	msg uring.Msg
	iov []uring.Iovec
}

var vectors = sync.Pool{New: func() any { return new(vector) }}

// fill points v at the first buffers of bufs.
func (v *vector) fill(bufs net.Buffers) {
	v.iov = v.iov[:0]
	room := maxTransfer
	for _, b := range bufs {
		if len(b) == 0 {
			continue
		}
		v.iov = append(v.iov, uring.NewIovec(b[:min(len(b), room)]))
		if room -= min(len(b), room); room == 0 || len(v.iov) == maxParts {
			break
		}
	}
	v.msg.Set(nil, v.iov, nil)
}

// Writev writes all buffers, in as few system calls as they fit into, and
// removes from bufs what was written, as net.Buffers.WriteTo does with a
// connection of package net's. The buffers are the connection's until Writev
// returns; they are not changed.
func (c *conn) Writev(bufs *net.Buffers) (int64, error) {
	n, err := c.writev(bufs)
	if err != nil {
		err = c.opError("writev", err)
	}
	return n, err
}

func (c *conn) writev(bufs *net.Buffers) (done int64, err error) {
	h := &c.wr
	if err := c.begin(h); err != nil {
		return 0, err
	}
	defer c.end(h)
	if err := c.check(h); err != nil {
		return 0, err
	}
	v := vectors.Get().(*vector)
	defer func() {
		v.msg.Set(nil, nil, nil)
		clear(v.iov)
		vectors.Put(v)
	}()
	for {
		if v.fill(*bufs); len(v.iov) == 0 {
			consume(bufs, 0)
			return done, nil
		}
		h.ready.Store(false)
		n, errno := sys.SockSendMsg(c.fd.Int(), sys.Pointer(&v.msg), sys.MsgDontWait)
		done += int64(n)
		consume(bufs, n)
		switch {
		case errno == syscall.EAGAIN:
			if err := c.waitWritable(); err != nil {
				return done, err
			}
			if err := c.check(h); err != nil {
				return done, err
			}
		case errno == 0 && n == 0:
			return done, io.ErrUnexpectedEOF
		case errno != 0 && errno != syscall.EINTR:
			return done, callError("writev", errno)
		}
	}
}

// consume removes n bytes, and empty buffers, from the front.
func consume(bufs *net.Buffers, n int) {
	for len(*bufs) > 0 {
		b := (*bufs)[0]
		if n < len(b) {
			(*bufs)[0] = b[n:]
			return
		}
		n -= len(b)
		(*bufs)[0] = nil
		*bufs = (*bufs)[1:]
	}
}

// SPDX-License-Identifier: MIT

package loadgen

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/sys"
)

// burst is the room for the datagrams of an answer, which are received by one call if they have
// arrived.
type burst struct {
	msgs  []sys.SockMsg
	parts []sys.SockPart
	room  [][]byte
}

func newBurst(j Job) *burst {
	b := &burst{make([]sys.SockMsg, j.Burst), make([]sys.SockPart, j.Burst), make([][]byte, j.Burst)}
	for i := range b.msgs {
		b.room[i] = make([]byte, j.Reply+1) // so that a longer datagram is noticed
		b.msgs[i].Set(nil, &b.parts[i], b.room[i], nil)
	}
	return b
}

// receiveBurst reads datagrams until there are none.
func (g *generator) receiveBurst(c *conn) error {
	for {
		n, errno := sys.SockRecvMany(c.fd, g.burst.msgs, 0)
		switch {
		case errno == unix.EAGAIN || errno == unix.EINTR:
			return nil
		case errno != 0:
			return fmt.Errorf("recvmmsg: %w", errno)
		}
		for i := range n {
			if err := g.takePart(c, g.burst.room[i][:g.burst.msgs[i].Len()]); err != nil {
				return err
			}
		}
		if n < len(g.burst.msgs) {
			return nil // an edge will follow
		}
	}
}

// takePart compares a datagram of an answer and, after the last one, sends the next message. A
// message that is sent again is answered again: datagrams of earlier answers, and copies, are
// dropped.
func (g *generator) takePart(c *conn, p []byte) error {
	if len(p) != g.job.Reply {
		return errChanged
	}
	i := binary.NativeEndian.Uint32(p[8:])
	if i >= uint32(g.job.Burst) {
		return errChanged
	}
	if binary.NativeEndian.Uint64(p) != c.n || c.parts&(1<<i) != 0 {
		return nil
	}
	if err := g.web.compare(int(i)*len(p)+partHeader, p[partHeader:]); err != nil {
		return err
	}
	c.parts |= 1 << i
	_, err := g.advance(c, len(p))
	return err
}

// SPDX-License-Identifier: MIT

package stress

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"time"
)

// connVerbs are steps with connections.
var connVerbs = []*verb{
	{"dial", []string{"conn"}, 1, func(g *generator) []int { return []int{g.slot()} }, (*worker).dialStep},
	{"echo", []string{"conn", "n", "deadline"}, 8, func(g *generator) []int {
		return []int{g.slot(), g.bytes(), pick(g.Rand, 0, 0, 1+g.IntN(2000))}
	}, (*worker).echoStep},
	{"finish", []string{"conn", "n"}, 1, func(g *generator) []int { return []int{g.slot(), g.bytes()} }, (*worker).finishStep},
	{"hangup", []string{"conn"}, 1, func(g *generator) []int { return []int{g.slot()} }, (*worker).hangUpStep},
	{"hangunder", []string{"conn"}, 1, func(g *generator) []int { return []int{g.slot()} }, (*worker).hangUnderStep},
}

// link is a connection with the numbers of the next bytes in both directions.
type link struct {
	Conn
	sent, got uint64
}

// conn returns the connection in a slot, and makes one if the slot is empty.
func (a *worker) conn(slot int) *link {
	if a.conns[slot] == nil {
		first := a.p.stream()
		c, err := a.p.w.Dial(first)
		a.done(1)
		if err != nil {
			a.refused("dial", err)
			return nil
		}
		a.conns[slot] = &link{c, first, first}
	}
	return a.conns[slot]
}

func (a *worker) hangUp(slot int) {
	if c := a.conns[slot]; c != nil {
		a.conns[slot] = nil
		a.check("close", c.Close())
		a.done(1)
	}
}

func (a *worker) dialStep(x []int) {
	a.hangUp(x[0])
	a.conn(x[0])
}

func (a *worker) hangUpStep(x []int) { a.hangUp(x[0]) }

// echoStep sends bytes and waits until they are echoed.
func (a *worker) echoStep(x []int) {
	if c := a.conn(x[0]); c != nil && a.send(c, x[1]) && !a.receive(c, x[2]) {
		a.hangUp(x[0])
	}
}

// send sends n bytes.
func (a *worker) send(c *link, n int) bool {
	a.out = slices.Grow(a.out[:0], n)
	p := a.out[:n]
	Bytes(p, c.sent)
	n, err := c.Write(p)
	a.done(1)
	if err != nil || n < len(p) {
		a.problem("%d bytes were sent, of %d: %v", n, len(p), err)
		return false
	}
	c.sent += uint64(n)
	return true
}

// receive reads the sent bytes, also after deadlines that have passed. It reports whether
// the connection can still be used.
func (a *worker) receive(c *link, deadline int) bool {
	for c.got < c.sent && !a.p.stop.Load() {
		if deadline > 0 {
			_ = c.SetReadDeadline(time.Now().Add(micros(deadline)))
		}
		p := a.buffer(mostBlocks * Block)
		n, err := c.Read(p[:min(len(p), int(c.sent-c.got))])
		a.done(1)
		a.echoed(c, p[:n])
		a.let(p, err)
		switch {
		case err == nil, a.p.w.Tolerates(err):
		case a.p.w.Broken(err):
			return false
		case deadline > 0 && errors.Is(err, os.ErrDeadlineExceeded):
			deadline = 0
			_ = c.SetReadDeadline(time.Time{})
		default:
			a.problem("%d bytes before the end: %v", c.sent-c.got, err)
			return false
		}
	}
	if deadline > 0 {
		_ = c.SetReadDeadline(time.Time{})
	}
	return true
}

// echoed checks received bytes.
func (a *worker) echoed(c *link, p []byte) {
	if at, wrong := differs(p, c.got); wrong {
		a.problem("byte %d of the connection is another", at)
	}
	c.got += uint64(len(p))
}

// finishStep sends, closes the writing side, and reads until the end.
func (a *worker) finishStep(x []int) {
	c := a.conn(x[0])
	if c == nil || !a.send(c, x[1]) {
		return
	}
	a.check("half close", c.CloseWrite())
	for a.receive(c, 0) && !a.p.stop.Load() {
		p := a.buffer(1)
		n, err := c.Read(p)
		a.let(p, err)
		if n == 0 && err == io.EOF || a.p.w.Broken(err) {
			break
		}
		if n > 0 || !a.p.w.Tolerates(err) {
			a.problem("in the place of the end: %d bytes, %v", n, err)
		}
	}
	a.hangUp(x[0])
}

// hangUnderStep closes a connection during a read that waits.
func (a *worker) hangUnderStep(x []int) {
	c := a.conn(x[0])
	if c == nil {
		return
	}
	ended := make(chan error, 1)
	go func() {
		for {
			n, err := c.Read(make([]byte, 10))
			if n > 0 || !a.p.w.Tolerates(err) {
				ended <- err
				return
			}
		}
	}()
	a.hangUp(x[0])
	if err := <-ended; !errors.Is(err, net.ErrClosed) && !a.p.w.Broken(err) {
		a.problem("a read of a connection that was closed under it: %v", err)
	}
}

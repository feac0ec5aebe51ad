// SPDX-License-Identifier: MIT

package event

import (
	"os"
	"syscall"
)

const (
	genMask   = 1<<24 - 1
	genShift  = 32
	kindShift = 56
)

// tag is the user data of an entry: its kind, and the connection's slot and
// generation.
func tag(kind int, slot, gen uint32) uint64 {
	return uint64(kind)<<kindShift | uint64(gen)<<genShift | uint64(slot)
}

func (k *link) tag(kind int) uint64 { return tag(kind, k.slot, k.gen) }

// find returns the connection of a completion, nil if it is gone.
func (l *loop) find(userData uint64) *Conn {
	slot := uint32(userData)
	if int(slot) >= len(l.conns) {
		return nil
	}
	c := l.conns[slot]
	if c == nil || c.link.gen != uint32(userData>>genShift)&genMask {
		return nil
	}
	return c
}

// deliver gives data to the handler, or keeps it while reading is stopped.
func (l *loop) deliver(c *Conn, data []byte) {
	k := &c.link
	c.mu.Lock()
	want := c.wantsInput()
	gone := c.state.closing || c.state.aborted || k.discard
	now := want && !gone && k.held.queue.n == 0
	if now {
		c.state.kicked = true // the loop looks anyhow: what is written needs no mail
	}
	c.mu.Unlock()
	switch {
	case gone:
	case now:
		c.onData(data)
		l.touch(c)
	default:
		k.held.queue.add(data)
		l.touch(c)
	}
}

// release gives to the handler what was kept.
func (l *loop) release(c *Conn) {
	h := &c.link.held
	for h.queue.n > 0 {
		c.mu.Lock()
		want := c.wantsInput()
		c.mu.Unlock()
		if !want {
			break
		}
		p := h.queue.front()
		p = p[:min(len(p), l.server.opts.BufferSize)]
		c.onData(p)
		h.queue.advance(len(p))
	}
	if h.queue.n == 0 && h.ended {
		h.ended = false
		l.broke(c, h.res)
	}
	l.touch(c)
}

// broke handles the end of what is received: end of stream, or an error.
func (l *loop) broke(c *Conn, res int32) {
	if res == 0 {
		c.ended(c.link.discard)
	} else {
		c.mu.Lock()
		c.fail(c.opError("read", os.NewSyscallError("recv", syscall.Errno(-res))))
		c.mu.Unlock()
	}
	l.touch(c)
}

// look does what the state of a connection asks for.
func (l *loop) look(c *Conn) {
	c.mu.Lock()
	s := &c.state
	if s.closed {
		c.mu.Unlock()
		return
	}
	if !l.d.room() {
		c.mu.Unlock()
		l.touch(c)
		return
	}
	s.kicked = false
	if s.timer {
		l.schedule(c)
	}
	if l.lookEnd(c) {
		c.mu.Unlock()
		l.finish(c)
		return
	}
	l.d.output(c)
	if c.takeWritable() {
		c.mu.Unlock()
		c.onWritable() // before input, which reads if what it writes leaves room
		c.mu.Lock()
	}
	release := l.d.input(c)
	c.mu.Unlock()
	if release {
		l.release(c)
	}
	if l.leaving && !c.link.drained && !c.link.armed {
		l.drain(c)
	}
}

// lookEnd says whether the connection can be closed now, and does what brings
// that about. The caller holds the connection's mutex.
func (l *loop) lookEnd(c *Conn) bool {
	s := &c.state
	switch {
	case s.aborted:
	case s.closing && c.out.n == 0 && !c.out.busy:
	default:
		return false
	}
	return l.d.end(c)
}

// finish closes a connection that the kernel has no operation of.
func (l *loop) finish(c *Conn) {
	c.mu.Lock()
	c.state.closed = true
	err := c.reason()
	c.mu.Unlock()
	defer l.reclaim(c, resets(err))
	c.onClose(err)
}

// reclaim frees what belongs to a connection of which OnClose was called.
func (l *loop) reclaim(c *Conn, reset bool) {
	k := &c.link
	c.mu.Lock()
	l.d.forget(c)
	fd := k.fd
	k.fd = -1
	c.out.drop()
	k.held.queue.drop()
	l.timers.remove(c)
	c.mu.Unlock()
	if reset {
		_ = syscall.SetsockoptLinger(fd, syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1})
	}
	_ = syscall.Close(fd)
	l.conns[k.slot] = nil
	l.free = append(l.free, k.slot)
	l.open--
	l.count.open.Add(-1)
	if !l.listen.retryAt.IsZero() {
		l.d.armAccept() // There is a descriptor again.
	}
}

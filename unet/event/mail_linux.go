// SPDX-License-Identifier: MIT

package event

import (
	"net"
	"syscall"
)

// idle implements backend.
func (l *loop) idle() bool { return l.d.idle() }

// kick implements backend.
func (l *loop) kick(c *Conn) {
	l.mu.Lock()
	l.inbox = append(l.inbox, c)
	first := !l.mail.Swap(true)
	l.mu.Unlock()
	if first {
		l.d.wake()
	}
}

// do implements backend.
func (l *loop) do(c *Conn, f func()) {
	if c.isClosed() {
		return
	}
	l.post(func() {
		if !c.isClosed() {
			c.run(f)
		}
	})
}

// post leaves a function for the loop. A loop that is over does not run it.
func (l *loop) post(f func()) {
	l.mu.Lock()
	l.tasks = append(l.tasks, f)
	first := !l.mail.Swap(true)
	l.mu.Unlock()
	if first {
		l.d.wake()
	}
}

// readMail does what others have left and says whether there was anything.
func (l *loop) readMail() bool {
	if l.nextMail == len(l.mailed) && l.nextDoing == len(l.doing) { // else a callback has exited
		if !l.mail.Load() {
			return false
		}
		l.mu.Lock()
		l.inbox, l.mailed, l.nextMail = l.mailed[:0], l.inbox, 0
		l.tasks, l.doing, l.nextDoing = l.doing[:0], l.tasks, 0
		l.mail.Store(false)
		l.mu.Unlock()
	}
	for l.nextMail < len(l.mailed) {
		c := l.mailed[l.nextMail]
		l.mailed[l.nextMail] = nil // a closed connection must not be kept alive
		l.nextMail++
		l.look(c)
	}
	for l.nextDoing < len(l.doing) {
		f := l.doing[l.nextDoing]
		l.doing[l.nextDoing] = nil
		l.nextDoing++
		f()
	}
	return true
}

// touch makes the loop look at a connection in this turn or the next.
func (l *loop) touch(c *Conn) {
	if !c.link.touched {
		c.link.touched = true
		l.again = append(l.again, c)
	}
}

// lookAgain looks at the connections that were touched.
func (l *loop) lookAgain() bool {
	if l.nextLook == len(l.looking) { // else a callback has exited
		if len(l.again) == 0 {
			return false
		}
		// Looking may touch again, for the next turn.
		l.again, l.looking, l.nextLook = l.looking[:0], l.again, 0
	}
	for l.nextLook < len(l.looking) {
		c := l.looking[l.nextLook]
		l.looking[l.nextLook] = nil
		l.nextLook++
		c.link.touched = false
		l.look(c)
	}
	return true
}

// sendNow implements backend.
func (l *loop) sendNow(c *Conn, p []byte) int {
	if c.link.fd < 0 {
		return 0
	}
	if len(p) > rawBytes {
		p = p[:rawBytes]
	}
	n, err := syscall.SendmsgN(c.link.fd, p, nil, nil, syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL)
	if err != nil {
		return 0 // The loop will meet the error, if it is one.
	}
	return n
}

// addrs implements backend.
func (l *loop) addrs(c *Conn) (local, remote net.Addr) {
	if c.link.fd < 0 {
		return nil, nil
	}
	if sa, err := syscall.Getsockname(c.link.fd); err == nil {
		local = netAddr(sa)
	}
	if sa, err := syscall.Getpeername(c.link.fd); err == nil {
		remote = netAddr(sa)
	}
	return local, remote
}

// netAddr converts an address.
func netAddr(sa syscall.Sockaddr) net.Addr {
	switch sa := sa.(type) {
	case *syscall.SockaddrInet4:
		return &net.TCPAddr{IP: append(net.IP(nil), sa.Addr[:]...), Port: sa.Port}
	case *syscall.SockaddrInet6:
		a := &net.TCPAddr{IP: append(net.IP(nil), sa.Addr[:]...), Port: sa.Port}
		if sa.ZoneId != 0 {
			if ifi, err := net.InterfaceByIndex(int(sa.ZoneId)); err == nil {
				a.Zone = ifi.Name
			}
		}
		return a
	case *syscall.SockaddrUnix:
		return &net.UnixAddr{Name: sa.Name, Net: "unix"}
	}
	return nil
}

// SPDX-License-Identifier: MIT

package unet

import (
	"os"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/ringloop"
	"github.com/ringside-io/ringside/internal/sys"
)

// alone is how the calls of a socket wait while it is the only active one of its loop: in
// Go's netpoller, like calls of package net. A driver gains by receiving for several
// sockets in a pass. For a single one it only adds a goroutine that must be woken first,
// and the calls with which it sleeps: 8 system calls for an exchange instead of 4.
//
// While a socket is alone, its loop does not watch it. It returns to the loop when other
// sockets are active too; see loop.othersActive.
//
// A socket with large messages waits alone as well, whatever other sockets do; see noteSize.
type alone struct {
	*netWait
	file     netFile // another descriptor of the socket, which the netpoller watches
	waits    int     // since another socket was active, at most aloneAfter; guarded by the socket's mu
	recalled bool    // the socket must return to its loop; guarded by the socket's mu
	large    bool    // the socket is alone for its large messages; guarded by the socket's mu

	// Of a young socket, of which file is the only descriptor; see settle. The reader's.
	reads int
	call  uint64
}

// netWait is what a socket needs to wait alone.
type netWait struct {
	fd  *sys.FD // of the socket
	raw syscall.RawConn

	// These are called when the netpoller reports the socket. They are made once, because
	// each call would allocate them.
	receive, readable, writable func(fd uintptr) bool

	buf  []byte // where receive puts data; the reader's
	res  int32  // as in delivery
	poll [2][1]sys.PollFD
}

// newAlone makes the callbacks for Go's netpoller once, so that a wait allocates nothing.
func newAlone(fd *sys.FD, file netFile) (*alone, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	a := &alone{netWait: &netWait{fd: fd, raw: raw}, file: file}
	a.receive = func(uintptr) bool {
		for {
			n, errno := sys.SockRecv(a.fd.Int(), a.buf, sys.MsgDontWait)
			switch errno {
			case syscall.EAGAIN:
				return false
			case syscall.EINTR:
				continue
			}
			a.res = result(n, errno)
			return true
		}
	}
	a.readable = func(uintptr) bool { return a.polled(0, syscall.EPOLLIN|syscall.EPOLLRDHUP) }
	a.writable = func(uintptr) bool { return a.polled(1, syscall.EPOLLOUT) }
	return a, nil
}

// polled reports whether one of the events, or an error, is pending. The events of poll and of
// epoll have the same numbers.
func (a *netWait) polled(direction int, events int16) bool {
	p := a.poll[direction][:]
	p[0] = sys.PollFD{Fd: int32(a.fd.Int()), Events: events}
	n, errno := sys.PollNow(p)
	return n > 0 || errno != 0
}

// offer lets the next call leave the loop, or takes that back.
func (s *sock) offer(may bool) {
	mode := uint32(usual)
	if may {
		mode = mayLeave
	}
	s.rd.mode.Store(mode)
	s.wr.mode.Store(mode)
}

// leaveLoop makes the socket wait alone. If that is not possible, for lack of a descriptor
// for example, nothing changes. The caller holds the turn of one direction.
func (s *sock) leaveLoop() {
	s.offer(false)
	var file *os.File
	var err error
	outside(func() { file, err = ringloop.PolledFile(s.fd.Int(), "socket") })
	if err != nil {
		return
	}
	a, err := newAlone(s.fd, file)
	s.mu.Lock()
	if err != nil || s.closing || s.alone != nil {
		s.mu.Unlock()
		_ = file.Close() // our own duplicate
		return
	}
	s.loop.poll.Remove(s.fd.Int())
	s.alone = a
	s.rd.interrupt(s) // a call in the other direction waits for the loop
	s.wr.interrupt(s)
	s.mu.Unlock()
}

// returnToLoop ends waiting alone. It reports whether the loop watches the socket; if not, the
// socket remains alone. The caller holds mu, which returnToLoop unlocks if it returns true.
func (s *sock) returnToLoop() bool {
	a := s.alone
	events := uint32(watched)
	if s.watchOut {
		events |= syscall.EPOLLOUT
	}
	if errno := s.loop.poll.Add(s.fd.Int(), events, s.key); errno != 0 {
		a.recalled = false
		return false
	}
	s.alone = nil
	s.rd.ready.Store(true)
	s.wr.ready.Store(true)
	s.mu.Unlock()
	_ = a.file.Close() // ends a call that waits in the other direction; our own duplicate
	return true
}

// waitAlone is wait for a socket that is alone. With a try it waits until try returns true, which done
// reports. The caller holds mu, which waitAlone unlocks.
func (s *sock) waitAlone(h *direction, buf []byte, try func(fd uintptr) bool) (done bool) {
	a := s.alone
	if a.recalled && s.returnToLoop() {
		return false
	}
	a.waits = min(a.waits+1, aloneAfter)
	h.state = parkedAlone
	s.mu.Unlock()
	if s.loop.starved.Load() {
		s.loop.help() // like wait
	}
	defer s.endAlone(a, h) // try may panic

	var err error
	switch {
	case try != nil:
		err = a.retry(h == &s.rd, func(uintptr) bool { return try(uintptr(a.fd.Int())) })
		return err == nil
	case h == &s.wr:
		err = a.raw.Write(a.writable)
	case buf == nil:
		err = a.raw.Read(a.readable)
	default:
		a.buf = buf
		err = a.raw.Read(a.receive)
		a.buf = nil
	}
	if err != nil || buf == nil {
		return false
	}
	n, _ := split(a.res)
	sys.RaceWrite(buf[:n])
	s.in.res, s.in.done = a.res, true
	return true
}

// retry makes the netpoller call try until it returns true.
func (a *netWait) retry(read bool, try func(fd uintptr) bool) error {
	if read {
		return a.raw.Read(try)
	}
	return a.raw.Write(try)
}

// endAlone ends a wait in the netpoller.
func (s *sock) endAlone(a *alone, h *direction) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.state == interrupted {
		a.setDeadline(h == &s.rd, time.Time{})
	}
	h.state = idle
}

const (
	// A read of largeFrom bytes is one of a large message, unless it fills a buffer of streamFrom bytes
	// or more. That is one of a stream, which loses some of its rate without the driver. So does a
	// connection whose reads deadlines end, as net/http does with one for each request. The count of
	// large messages then begins at staysLong: the reads between two of these are fewer.
	largeFrom  = 8 << 10
	streamFrom = 64 << 10
	largeReads = 16
	staysLong  = -100
)

// noteSize records that a read into a buffer of room bytes got n. The socket waits alone once it has
// had largeReads more reads of large messages than others, until it is the reverse: copying such a
// message takes longer than what a driver saves. The caller holds the turn.
func (s *sock) noteSize(n, room int) {
	switch {
	case n == room && room >= streamFrom:
		s.countLarge(staysLong)
	case n >= largeFrom:
		s.countLarge(min(s.large+1, largeReads))
	case s.large > 0:
		s.countLarge(s.large - 1)
	}
}

// noteExpired records that a deadline has ended a read. The caller holds the turn.
func (s *sock) noteExpired() { s.countLarge(staysLong) }

// countLarge sets the count of large messages, and makes the socket wait alone or with its driver.
func (s *sock) countLarge(n int8) {
	before := s.large
	s.large = n
	switch {
	case n == before:
	case n == largeReads:
		s.stepAside()
	case n <= 0 && before > 0:
		s.stepBack()
	}
}

// stepAside makes a socket with large messages wait alone. It is tried again later where calls help a
// starved driver, and where many descriptors are in use, as it takes another.
func (s *sock) stepAside() {
	s.mu.Lock()
	aside := s.alone != nil && s.alone.large // and has had some smaller messages since
	s.mu.Unlock()
	if aside {
		return
	}
	if s.loop.starved.Load() || !s.hasSpareFD() {
		s.large = 0
		return
	}
	s.leaveLoop()
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.alone; a != nil {
		a.large, a.recalled = true, false
	}
}

// stepBack reverses stepAside.
func (s *sock) stepBack() {
	s.mu.Lock()
	a := s.alone
	back := a != nil && a.large
	if back {
		a.large, a.recalled = false, true
	}
	s.mu.Unlock()
	if back {
		s.loop.table.offerAgain(s.key)
	}
}

// hasSpareFD reports whether less than a quarter of the descriptors that the process may have are in
// use, by the number of the socket's.
func (s *sock) hasSpareFD() bool {
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	return err == nil && uint64(s.fd.Int()) < limit.Cur/4
}

// recall makes the socket return to its loop if it waited fewer than aloneAfter times since
// the last call. It reports whether the socket returns, or had returned before, or is alone for its
// large messages.
func (s *sock) recall() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offer(false)
	a := s.alone
	if a == nil || a.large {
		return true
	}
	if a.waits >= aloneAfter {
		a.waits = 0
		return false
	}
	a.recalled = true
	s.rd.interrupt(s)
	s.wr.interrupt(s)
	return true
}

// offerAlone lets the socket of the key leave the loop if no other has.
func (l *loop) offerAlone(key uint64) {
	t := &l.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.alone != 0 {
		return
	}
	if s := t.find(key); s != nil {
		t.alone = key
		s.offer(true)
	}
}

// offerAgain records that the socket of the key, if it is the one that may wait alone, returns to its
// loop by itself.
func (t *table) offerAgain(key uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.alone == key {
		t.alone = 0
	}
}

// othersActive is called when a socket other than the one that is alone had events. The
// latter remains alone if it is much more active. The caller holds the table's mu.
func (l *loop) othersActive() {
	if s := l.table.find(l.table.alone); s == nil || s.recall() {
		l.table.alone = 0
	}
}

// SPDX-License-Identifier: MIT

package unet

import (
	"io"
	"net"
	"runtime"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
)

// A dialled connection is young: calls are made by the connection of package net that dialled, so
// that a call over a new connection costs what it costs there. The loop watches it once it has made
// some reads while other sockets are active.

// youngReads is how many reads a young socket makes before it may settle.
const youngReads = 16

// settle makes the loop watch a young socket, by a duplicate of its descriptor. Calls of package net
// that wait end, and go on with the duplicate. After an error the socket remains young.
func (s *sock) settle() error {
	s.mu.Lock()
	a := s.alone
	switch {
	case s.closing:
		s.mu.Unlock()
		return net.ErrClosed
	case s.rd.mode.Load() != young:
		s.mu.Unlock()
		return nil
	}
	fd, err := dupConn(a.file)
	if err == nil {
		err = s.watch(fd)
	}
	if err != nil {
		s.mu.Unlock()
		return err
	}
	closeDropped(s, s)
	runtime.SetFinalizer(a.file, nil)
	s.alone = nil
	s.rd.ready.Store(true)
	s.wr.ready.Store(true)
	s.arm(s.clock.read)
	s.arm(s.clock.write)
	s.wr.mode.Store(usual)
	s.rd.mode.Store(usual) // last: a call that finds the one or the other uses the duplicate
	s.mu.Unlock()
	_ = a.file.Close() // the duplicate keeps the socket open
	return nil
}

// ofNet returns the connection of package net of a young socket, nil of any other.
func (s *sock) ofNet() *alone {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rd.mode.Load() != young {
		return nil
	}
	return s.alone
}

// readYoung is read for a young socket. If done is false, the socket has settled, and nothing was
// read. The caller holds the turn.
func (s *sock) readYoung(p []byte) (n int, done bool, err error) {
	a := s.ofNet()
	if a == nil {
		return 0, false, nil
	}
	if a.reads++; a.reads > youngReads {
		a.reads = 0
		if s.loop.table.crowded(a) && s.settle() == nil {
			return 0, false, nil
		}
	}
	if s.loop.starved.Load() {
		s.loop.help() // like wait
	}
	n, err = a.file.Read(p)
	sys.RaceAcquire(&wire)
	if err == io.EOF {
		return 0, true, nil
	}
	done, err = s.afterYoung(&s.rd, err)
	return n, done, err
}

// writeYoung is write for a young socket. If done is false, the socket has settled, and n bytes were
// written. The caller holds the turn.
func (s *sock) writeYoung(p []byte) (n int, done bool, err error) {
	a := s.ofNet()
	if a == nil {
		return 0, false, nil
	}
	sys.RaceRelease(&wire)
	n, err = a.file.Write(p)
	done, err = s.afterYoung(&s.wr, err)
	return n, done, err
}

// writevYoung is writev for a young socket. If ended is false, the socket has settled, and done bytes
// were written. The caller holds the turn.
func (s *sock) writevYoung(bufs *net.Buffers) (done int64, ended bool, err error) {
	a := s.ofNet()
	if a == nil {
		return 0, false, nil
	}
	sys.RaceRelease(&wire)
	done, err = bufs.WriteTo(a.file)
	ended, err = s.afterYoung(&s.wr, err)
	return done, ended, err
}

// retryYoung is retry for a young socket. If done is false, the socket has settled. The caller holds
// the turn.
func (s *sock) retryYoung(h *direction, f func(fd uintptr) bool) (done bool, err error) {
	a := s.ofNet()
	if a == nil {
		return false, nil
	}
	raw, err := a.file.SyscallConn()
	switch {
	case err != nil:
	case h == &s.rd:
		err = raw.Read(f)
	default:
		err = raw.Write(f)
	}
	return s.afterYoung(h, err)
}

// afterYoung returns the error of a call of package net, and whether the call has ended: it must go
// on if settle has closed the connection below it.
func (s *sock) afterYoung(h *direction, err error) (done bool, _ error) {
	err = withoutOp(err)
	if err == net.ErrClosed && h.mode.Load() != young {
		return false, nil
	}
	return true, err
}

// useYoung calls f with the descriptor of a young socket. If done is false, the socket has settled,
// and f was not called.
func (s *sock) useYoung(f func(fd int) error) (done bool, err error) {
	a := s.ofNet()
	if a == nil {
		return false, nil
	}
	raw, err := a.file.SyscallConn()
	var errF error
	if err == nil {
		err = raw.Control(func(fd uintptr) { errF = f(int(fd)) })
	}
	if err == nil {
		return true, errF
	}
	return s.afterYoung(&s.rd, err)
}

// dupConn duplicates the descriptor of a socket of package net.
func dupConn(c syscall.Conn) (fd int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	var dupErr error
	if err := raw.Control(func(old uintptr) { fd, dupErr = sys.Dup(int(old)) }); err != nil {
		return -1, err
	}
	return fd, syscallError("dup", dupErr)
}

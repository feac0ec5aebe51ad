// SPDX-License-Identifier: MIT

package unet

import (
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/ringside-io/ringside/internal/epoll"
	"github.com/ringside-io/ringside/internal/fdlock"
	"github.com/ringside-io/ringside/internal/sys"
)

// sock is a non-blocking descriptor that a loop watches.
type sock struct {
	fd   *sys.FD
	loop *loop
	key  uint64
	lock fdlock.Lock // the users of the descriptor

	mu       sync.Mutex
	closing  bool // guarded by mu
	watchOut bool // guarded by mu: events of writing are watched
	large    int8 // see noteSize; the reader's
	// moreLikely is set when more data may follow a short receive: the peer has
	// closed or failed, the socket keeps message boundaries, or other code has used
	// the descriptor.
	moreLikely atomic.Bool
	rd, wr     direction
	in         delivery
	alone      *alone // guarded by mu; nil while the loop watches the socket
	clock      deadlines
	drop       runtime.Cleanup // see closeDropped
}

// watched are the events that are watched of every socket.
const watched = syscall.EPOLLIN | syscall.EPOLLRDHUP | syscall.EPOLLPRI | epoll.EdgeTriggered

// open begins to watch a descriptor. It takes ownership of it, even on failure.
func (s *sock) open(system *System, fd int) error {
	l, err := system.acquire()
	if err != nil {
		_ = syscall.Close(fd) // the first error counts
		return err
	}
	s.loop = l
	if err := s.watch(fd); err != nil {
		system.release()
		return err
	}
	return nil
}

// watch is open for a socket that has a loop.
func (s *sock) watch(fd int) error {
	s.fd = sys.NewFD(fd)
	s.loop.table.add(s)
	if errno := s.loop.poll.Add(fd, watched, s.key); errno != 0 {
		s.loop.table.remove(s.key)
		_ = s.fd.Close()
		return os.NewSyscallError("epoll_ctl", errno)
	}
	return nil
}

// close ends all calls that wait, waits until the last one has returned, and
// closes the descriptor.
func (s *sock) close() error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return net.ErrClosed
	}
	s.closing = true // from now on the mode and alone do not change
	s.rd.interrupt(s)
	s.wr.interrupt(s)
	s.clock.stop()
	s.mu.Unlock()
	if s.rd.mode.Load() == young {
		return s.closeYoung()
	}
	s.lock.CloseAcrossBubbles()
	s.drop.Stop()
	r := resources{s.fd, s.loop, s.key}
	if a := s.alone; a != nil {
		_ = a.file.Close() // a descriptor of our own
	} else {
		r.unwatch()
	}
	return r.free()
}

// closeYoung is close for a young socket.
func (s *sock) closeYoung() error {
	err := s.alone.file.Close() // ends the calls that wait
	s.lock.CloseAcrossBubbles()
	runtime.SetFinalizer(s.alone.file, nil)
	s.loop.system.release()
	return withoutOp(err)
}

// resources are held by a socket, which must free them.
type resources struct {
	fd   *sys.FD
	loop *loop
	key  uint64
}

// unwatch ends the loop's watching. A duplicate of the descriptor may keep the socket open.
func (r resources) unwatch() { r.loop.poll.Remove(r.fd.Int()) }

func (r resources) free() error {
	r.loop.table.remove(r.key)
	err := r.fd.Close()
	r.loop.system.release()
	return err
}

// closeDropped makes the garbage collector close the socket of a connection or
// listener that the program drops without Close, as package net does. It sets a
// cleanup because the program may set a finalizer. The file of a Unix listener
// stays. A young socket has freeYoung instead.
func closeDropped[T any](whole *T, s *sock) {
	s.drop = runtime.AddCleanup(whole, freeDropped, resources{s.fd, s.loop, s.key})
}

func freeDropped(r resources) {
	r.unwatch()
	go func() { _ = r.free() }() // free may wait for the driver, and cleanups must not
}

// callError returns an error that names the system call, as in package net, or nil.
func callError(call string, errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return os.NewSyscallError(call, errno)
}

// withoutOp returns the error that package net has wrapped. The caller wraps it again.
func withoutOp(err error) error {
	if op, ok := err.(*net.OpError); ok {
		return op.Err
	}
	return err
}

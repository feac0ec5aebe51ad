// SPDX-License-Identifier: MIT

package unet

import (
	"errors"
	"io"
	"math"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
)

// errNoDriver is nil: drivers work on Linux.
var errNoDriver error

// acquire counts a socket and returns its loop. It starts the loops for the first
// socket.
func (s *System) acquire() (*loop, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.loops) == 0 {
		var err error
		outside(func() { err = s.start() })
		if err != nil {
			return nil, err
		}
	}
	s.users++
	s.used = true
	s.next++
	return s.loops[s.next%len(s.loops)], nil
}

func (s *System) start() error {
	n := s.opts.Loops
	if n <= 0 {
		n = (runtime.GOMAXPROCS(0) + 3) / 4
	}
	for range n {
		l, err := newLoop(s)
		if err != nil {
			_ = s.stop() // the first error counts
			return err
		}
		l.freeYoung = s.freeYoung
		s.loops = append(s.loops, l)
	}
	return nil
}

// freeYoung closes a young socket that the program dropped. A finalizer must not wait.
func (s *System) freeYoung(file io.Closer) {
	go func() {
		_ = file.Close()
		s.release()
	}()
}

// release undoes acquire. After the last socket it waits until the drivers have
// ended, unless they linger.
func (s *System) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users > 0 {
		return
	}
	if s.linger == 0 {
		_ = s.stop() // errors of closing our own descriptors concern no caller
		return
	}
	if !s.timed {
		s.timed, s.used = true, false
		outside(s.stopLater)
	}
}

// stopLater makes a timer stop the drivers. A release reads no clock: each dial may be one.
func (s *System) stopLater() { time.AfterFunc(s.linger, s.stopIdle) }

// stopIdle stops the drivers if there has been no other socket since the timer was set.
func (s *System) stopIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users > 0 {
		s.timed = false // the release of the last one sets the timer
		return
	}
	if s.used {
		s.used = false
		s.stopLater()
		return
	}
	s.timed = false
	_ = s.stop()
}

func (s *System) stop() error {
	var errs []error
	for _, l := range s.loops {
		errs = append(errs, l.close())
		s.ended = s.ended.Plus(l.stats())
	}
	s.loops = nil
	s.closePipes()
	return errors.Join(errs...)
}

// userTimeout sets TCP_USER_TIMEOUT.
func userTimeout(fd int, d time.Duration) error {
	const most = math.MaxInt32 * time.Millisecond
	ms := (min(max(d, 0), most) + time.Millisecond - 1) / time.Millisecond
	return os.NewSyscallError("setsockopt", sys.SetSockInt(fd, syscall.IPPROTO_TCP, sys.TCPUserTimeout, int(ms)))
}

// pipe moves data from one socket to another inside the kernel.
type pipe struct{ r, w *sys.FD }

func (p *pipe) close() {
	_ = p.r.Close() // an error loses nothing: data in the pipe was not counted as sent
	_ = p.w.Close()
}

// getPipe returns an empty pipe.
func (s *System) getPipe() (*pipe, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.pipes); n > 0 {
		p := s.pipes[n-1]
		s.pipes = s.pipes[:n-1]
		return p, nil
	}
	r, w, err := sys.SplicePipe()
	if err != nil {
		return nil, err
	}
	return &pipe{r, w}, nil
}

// putPipe keeps an empty pipe for a later copy, or closes it.
func (s *System) putPipe(p *pipe) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pipes) < sparePipes && s.users > 0 {
		s.pipes = append(s.pipes, p)
		return
	}
	p.close()
}

// closePipes closes the pipes of a system without sockets. The caller holds mu.
func (s *System) closePipes() {
	for _, p := range s.pipes {
		p.close()
	}
	s.pipes = nil
}

// SPDX-License-Identifier: MIT

package event

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/ringside-io/ringside/internal/sys"
)

// loops is the engine of a server with event loops.
type loops struct {
	tally
	all    []driver
	path   string        // of a Unix socket
	unlink sync.Once     // removes the file of path
	next   atomic.Uint32 // the loop for the next enrolled connection
}

// removeFile removes the file of a Unix socket, once: another socket may use the path afterwards.
func (r *loops) removeFile() { r.unlink.Do(func() { unlink(r.path) }) }

// startLoops starts a server with loops of one kind.
func (s *Server) startLoops(address string, kind Mode) error {
	r := &loops{}
	listeners, addr, err := s.listen(address)
	if err != nil {
		return err
	}
	if s.given == nil {
		r.path = fileOf(addr)
	}
	for _, fd := range listeners {
		d := newDriver(kind)
		l := d.base()
		l.d, l.server, l.listen.fd, l.listen.stopped = d, s, fd, fd < 0
		l.listen.lingers = sys.SockLingers(fd)
		l.listen.shared = s.given != nil || s.network == "unix" && len(listeners) > 1
		if err = d.start(); err != nil {
			break
		}
		r.all = append(r.all, d)
	}
	if err != nil {
		return errors.Join(err, r.undo(listeners))
	}
	s.addr, s.engine = addr, r
	for range r.all {
		r.wg.Add(1)
	}
	r.closeWhenDone(func() {
		s.background.Wait()
		r.removeFile()
	})
	for i, d := range r.all {
		go func() {
			defer func() { // runtime.Goexit runs nothing else
				if err := d.base().broken; err != nil {
					r.state.end(fmt.Errorf("event: loop %d of %d has failed: %w", i+1, len(r.all), err))
				}
				r.wg.Done()
			}()
			s.label(i + 1)
			d.base().serve()
		}()
	}
	return nil
}

// newDriver returns a loop of a kind.
func newDriver(kind Mode) driver {
	if kind == ModeEpoll {
		return &pollLoop{}
	}
	return &ringLoop{}
}

// undo closes the resources of loops that never ran.
func (r *loops) undo(listeners []int) error {
	var err error
	for _, d := range r.all {
		err = errors.Join(err, d.undo())
	}
	closeFDs(listeners)
	r.removeFile() // otherwise the path could not be bound again
	return err
}

func (r *loops) shutdown() {
	r.removeFile() // as package net does when it closes a listener
	for _, d := range r.all {
		l := d.base()
		l.post(l.shutdownAll)
	}
}

func (r *loops) abort() { r.shutdown() }

// enroll implements engine.
func (r *loops) enroll(nc net.Conn, o ConnOptions) (*Conn, error) {
	fd, err := dupFD(nc)
	if err != nil {
		return nil, err
	}
	from := r.from(r.next.Add(1))
	if o.Beside != nil {
		from = []*loop{o.Beside.back.(*loop)}
	}
	for _, l := range from { // a loop that has failed refuses
		c := l.newConn(fd, nc.LocalAddr().Network(), o)
		c.bstate.lingers = sys.SockLingers(fd)
		l.count.enrolled.Add(1)
		if err = l.enroll(c); err == nil {
			return c, nil
		}
		l.count.enrolled.Add(^uint64(0))
	}
	closeFDs([]int{fd})
	return nil, err
}

// from returns the loops, beginning with loop n modulo their number.
func (r *loops) from(n uint32) []*loop {
	all := make([]*loop, len(r.all))
	for i := range all {
		all[i] = r.all[(n+uint32(i))%uint32(len(r.all))].base()
	}
	return all
}

func (r *loops) stats() Stats {
	var s Stats
	for _, d := range r.all {
		s = s.Plus(d.base().count.stats())
	}
	return s
}

// SPDX-License-Identifier: MIT

package event

import (
	"errors"
	"fmt"
	"syscall"
)

// loops is the engine of a server with event loops.
type loops struct {
	tally
	all  []driver
	path string // of a Unix socket
}

// startLoops starts a server with loops of one kind.
func (s *Server) startLoops(address string, kind Mode) error {
	r := &loops{}
	listeners, addr, err := s.listen(address)
	if err != nil {
		return err
	}
	r.path = fileOf(addr)
	for _, fd := range listeners {
		d := newDriver(kind)
		l := d.base()
		l.d, l.server, l.listen.fd = d, s, fd
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
	r.closeWhenDone(func() { unlink(r.path) })
	for i, d := range r.all {
		go func() {
			defer func() { // runtime.Goexit runs nothing else
				if err := d.base().broken; err != nil {
					r.state.end(fmt.Errorf("event: loop %d of %d has failed: %w", i+1, len(r.all), err))
				}
				r.wg.Done()
			}()
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

// undo closes what was opened in vain.
func (r *loops) undo(listeners []int) error {
	var err error
	for _, d := range r.all {
		err = errors.Join(err, d.undo())
	}
	for _, fd := range listeners {
		err = errors.Join(err, syscall.Close(fd))
	}
	unlink(r.path) // or nobody else could bind it
	return err
}

func (r *loops) shutdown() {
	for _, d := range r.all {
		l := d.base()
		l.post(l.leaveAll)
	}
}

func (r *loops) abort() { r.shutdown() }

func (r *loops) stats() Stats {
	var s Stats
	for _, d := range r.all {
		s = s.Plus(d.base().count.stats())
	}
	return s
}

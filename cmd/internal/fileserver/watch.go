// SPDX-License-Identifier: MIT

package fileserver

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// watch is net/http's watch for a client that goes away while it is answered: a read of one byte without
// a deadline, which setting one in the past ends. Here it waits for that alone and reads nothing. A
// client that is gone is noticed when something is sent to it, and reading costs each request a
// system call and a turn of what waits for sockets.
type watch struct {
	mu    sync.Mutex
	ended chan struct{} // nil if no goroutine watches
	timed bool          // there is a deadline
	past  bool          // it is over
	done  bool          // the connection is closed
}

// wait waits for the end of the watch; false says that this is not one.
func (w *watch) wait() (bool, error) {
	w.mu.Lock()
	switch {
	case w.done:
		w.mu.Unlock()
		return true, net.ErrClosed
	case w.past:
		w.mu.Unlock()
		return true, os.ErrDeadlineExceeded
	case w.timed || w.ended != nil:
		w.mu.Unlock()
		return false, nil
	}
	ended := make(chan struct{})
	w.ended = ended
	w.mu.Unlock()
	<-ended
	return true, os.ErrDeadlineExceeded
}

// deadline learns of a deadline; one in the past ends a watch.
func (w *watch) deadline(t time.Time) {
	w.mu.Lock()
	w.timed = !t.IsZero()
	w.past = w.timed && !t.After(time.Now())
	if w.past {
		w.end()
	}
	w.mu.Unlock()
}

// close ends the watch for good.
func (w *watch) close() {
	w.mu.Lock()
	w.done = true
	w.end()
	w.mu.Unlock()
}

func (w *watch) end() {
	if w.ended != nil {
		close(w.ended)
		w.ended = nil
	}
}

// reads are the deadline of reads as net/http sets it, several times for a request, and as the
// connection knows it: that of the moment when something is read. Whoever reads sets it for itself,
// or somebody else while it reads.
type reads struct {
	mu           sync.Mutex
	wanted, real time.Time
	reading      bool
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	if len(p) == 1 {
		if watched, err := c.watch.wait(); watched {
			return 0, err
		}
	}
	r := &c.reads
	r.mu.Lock()
	r.reading = true
	err := c.apply()
	r.mu.Unlock()
	n := 0
	if err == nil {
		n, err = c.Conn.Read(p)
	}
	r.mu.Lock()
	r.reading = false
	r.mu.Unlock()
	return n, err
}

// apply tells the connection the deadline that is wanted.
func (c *conn) apply() error {
	if c.reads.wanted.Equal(c.reads.real) {
		return nil
	}
	c.reads.real = c.reads.wanted
	return c.Conn.SetReadDeadline(c.reads.real)
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.watch.deadline(t)
	c.reads.mu.Lock()
	defer c.reads.mu.Unlock()
	c.reads.wanted = t
	if !c.reads.reading {
		return nil
	}
	return c.apply()
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.closed.Store(true)
	c.watch.close()
	return c.Conn.Close()
}

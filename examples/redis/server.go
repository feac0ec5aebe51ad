// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/ringside-io/ringside/unet/event"
)

// batch is how many bytes of answers are joined into one write.
const batch = 32 << 10

// server is shared by the connections.
type server struct {
	store   *store
	idle    time.Duration // how long a connection may go without a whole request
	scratch sync.Pool     // of *scratch
}

// scratch is memory for answering, which is not needed between callbacks.
type scratch struct {
	out  []byte
	args [][]byte
}

// client is a connection. Its fields belong to the callbacks, which never overlap.
type client struct {
	in   []byte // an incomplete request, or requests that wait until the peer reads answers
	out  []byte // answers that Write did not accept
	quit bool
}

func newServer(most int64, idle time.Duration) *server {
	s := &server{store: newStore(most), idle: idle}
	s.scratch.New = func() any { return &scratch{make([]byte, 0, 2*batch), make([][]byte, 0, 8)} }
	return s
}

func (s *server) handler() event.Handler {
	return event.Handler{
		OnOpen:     s.open,
		OnTimer:    (*event.Conn).Abort,
		OnData:     s.data,
		OnWritable: s.writable,
	}
}

// open starts the idle time. Only a whole request restarts it, so that a peer
// cannot keep a connection by a byte now and then.
func (s *server) open(c *event.Conn) {
	c.SetValue(new(client))
	c.SetTimer(s.idle)
}

// data handles arrived data. It usually has whole requests, which are parsed in
// place.
func (s *server) data(c *event.Conn, p []byte) {
	k := c.Value().(*client)
	if len(k.in) > 0 {
		k.in = append(k.in, p...)
		p = k.in
	}
	k.keep(s.answer(c, k, p))
	if len(k.out) > 0 {
		c.PauseRead()
	}
}

// keep stores the input that was not answered. rest may be a part of k.in.
func (k *client) keep(rest []byte) {
	if len(rest) == 0 {
		k.in = nil
		return
	}
	k.in = append(k.in[:0], rest...)
}

// writable continues after the peer has read answers.
func (s *server) writable(c *event.Conn) {
	k := c.Value().(*client)
	if out := k.out; len(out) > 0 {
		k.out = nil
		if !k.write(c, out) {
			return
		}
	}
	k.keep(s.answer(c, k, k.in))
	if len(k.out) == 0 {
		c.ResumeRead()
	}
}

// answer executes the requests in p until none is complete, or the peer does not
// read the answers, and returns the rest of p.
func (s *server) answer(c *event.Conn, k *client, p []byte) (rest []byte) {
	x := s.scratch.Get().(*scratch)
	defer s.scratch.Put(x)
	defer clear(x.args[:cap(x.args)]) // they are parts of p, which belongs to the caller
	out := x.out
	for len(p) > 0 && !k.quit {
		words, n, err := parse(p, x.args)
		if err != nil {
			out, k.quit = fail(out, fmt.Errorf("protocol error: %w", err)), true
			break
		}
		if n == 0 {
			break
		}
		p = p[n:]
		c.SetTimer(s.idle)
		if len(words) > 0 {
			out, k.quit = s.store.command(out, words)
		}
		if len(out) >= batch {
			if !k.write(c, out) {
				return p
			}
			out = out[:0]
		}
	}
	if len(out) > 0 && !k.write(c, out) {
		return p
	}
	if k.quit {
		_ = c.Close()
		return nil
	}
	return p
}

// write sends answers, or keeps them when there is no room.
func (k *client) write(c *event.Conn, out []byte) bool {
	if _, err := c.Write(out); err == event.ErrFull {
		k.out = append([]byte(nil), out...)
		return false
	}
	return true // OnClose gets the error of a broken connection
}

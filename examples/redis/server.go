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

// server is what the connections share.
type server struct {
	store   *store
	idle    time.Duration // how long a connection may go without a whole request
	scratch sync.Pool     // of *scratch
}

// scratch is what answering takes, and is not needed in between.
type scratch struct {
	out  []byte
	args [][]byte
}

// client is a connection. Its fields belong to the callbacks, which come one
// after the other.
type client struct {
	in   []byte // the beginning of a request, or what waits for a peer that does not read
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

// open begins the time that a peer has. Bytes alone do not begin it anew, so that
// a byte now and then does not keep a connection.
func (s *server) open(c *event.Conn) {
	c.SetValue(new(client))
	c.SetTimer(s.idle)
}

// data takes what has arrived: usually whole requests, which are answered from
// where they are.
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

// keep holds on to what has not been answered. rest may be a part of k.in.
func (k *client) keep(rest []byte) {
	if len(rest) == 0 {
		k.in = nil
		return
	}
	k.in = append(k.in[:0], rest...)
}

// writable goes on where the peer had not taken its answers.
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

// answer carries out the requests in p until there is no whole one, or the peer
// does not take the answers, and returns what is left of p.
func (s *server) answer(c *event.Conn, k *client, p []byte) (rest []byte) {
	x := s.scratch.Get().(*scratch)
	defer s.scratch.Put(x)
	defer clear(x.args[:cap(x.args)]) // they are parts of p, which is not ours
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
	return true // a broken connection is told to OnClose
}

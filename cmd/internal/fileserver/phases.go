// SPDX-License-Identifier: MIT

package fileserver

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// phases follow what the connections of a server do, for its end: net/http waits for seconds for a
// connection on which no request has come yet, such as browsers open ahead, and does not tell whether what
// it waited for in vain was an answer.
type phases struct {
	answering atomic.Int64

	mu     sync.Mutex
	silent map[*conn]struct{} // those without a request so far
	ended  bool
}

// change is the ConnState of a server.
func (p *phases) change(nc net.Conn, to http.ConnState) {
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn()
	}
	c, ok := nc.(*conn)
	if !ok {
		return
	}
	if to == http.StateNew {
		p.begin(c)
		return
	}
	switch from := http.ConnState(c.phase.Swap(int32(to))); {
	case from == http.StateNew:
		p.mu.Lock()
		delete(p.silent, c)
		p.mu.Unlock()
	case from == http.StateActive:
		p.answering.Add(-1)
	}
	if to == http.StateActive {
		p.answering.Add(1)
	}
}

// begin enters a connection, or closes it if it comes too late.
func (p *phases) begin(c *conn) {
	p.mu.Lock()
	ended := p.ended
	if !ended {
		if p.silent == nil {
			p.silent = map[*conn]struct{}{}
		}
		p.silent[c] = struct{}{}
	}
	p.mu.Unlock()
	if ended {
		_ = c.Close() // no client waits for a response
	}
}

// endSilent closes the connections that have not asked for anything, now and from now on.
func (p *phases) endSilent() {
	p.mu.Lock()
	p.ended = true
	silent := p.silent
	p.silent = nil
	p.mu.Unlock()
	for c := range silent {
		_ = c.Close() // no client waits for a response
	}
}

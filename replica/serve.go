// SPDX-License-Identifier: MIT

package replica

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"time"
)

func (w *wire) welcome(c net.Conn) {
	if w.node.opts.TLS != nil {
		c = tls.Server(c, w.node.opts.TLS)
	}
	if !w.track(c) {
		c.Close()
		return
	}
	_ = c.SetDeadline(time.Now().Add(helloTimeout))
	var h hello
	if receive(c, &h) != nil {
		w.drop(c)
		return
	}
	err := w.judge(&h)
	if err == nil {
		err = certified(c, h.From)
	}
	if err != nil {
		w.node.log.Warn("replica: a connection was refused", "from", h.From, "address", h.Address, "error", err)
		_ = send(c, welcome{Error: err.Error()})
		w.drop(c)
		return
	}
	n := w.node
	n.membership.mu.RLock()
	known, cluster := n.membership.dirs.Members[h.From], n.membership.cluster
	n.membership.mu.RUnlock()
	version := n.opts.versions.common(h.versions())
	if send(c, welcome{Version: version, ID: n.opts.ID, Cluster: cluster, Directory: n.membership.directory, Known: known}) != nil || c.SetDeadline(time.Time{}) != nil {
		w.drop(c)
		return
	}
	switch h.Kind {
	case kindRaft:
		select {
		case w.accepted <- c:
		case <-w.node.life.closing.Done():
			w.drop(c)
		}
		return // raft or Close closes it
	case kindRequest:
		w.requests(c)
	case kindFetch:
		w.serveFetch(c)
	case kindForward:
		w.serveForward(c)
	case kindTerm:
		w.serveTerms(c)
	}
	w.drop(c)
}

// serveTerms answers each byte with the current term.
func (w *wire) serveTerms(c net.Conn) {
	var p [8]byte
	for {
		if _, err := c.Read(p[:1]); err != nil {
			return
		}
		if _, err := c.Write(binary.LittleEndian.AppendUint64(p[:0], w.node.raft.CurrentTerm())); err != nil {
			return
		}
	}
}

// request is a request to a member; answer is its answer.
type request struct {
	Kind     string     `json:"kind"`
	Database uint64     `json:"database,omitempty"`
	Check    proposalID `json:"check"` // of askSum
}

type answer struct {
	Error    string     `json:"error,omitempty"`
	Index    uint64     `json:"index,omitempty"`
	Position Position   `json:"position"`
	Sum      uint64     `json:"sum,omitempty"`
	Check    proposalID `json:"check"`             // of askCheck
	Pending  bool       `json:"pending,omitempty"` // of askSum: ask again
	Begun    bool       `json:"begun,omitempty"`   // of askSum: the member has come to the entry
}

const (
	askIndex = "index" // the index that a read must see; the leader answers
	askCheck = "check" // the leader makes an entry at which all members compute the checksum of a database
	askSum   = "sum"   // that checksum, of the pages as they are in the files

	askApplied = "applied" // the index of the last entry that the member has stored and applied
)

// requests answers requests until the connection ends.
func (w *wire) requests(c net.Conn) {
	for {
		var r request
		if receive(c, &r) != nil {
			return
		}
		var a answer
		var err error
		switch r.Kind {
		case askIndex:
			if err = w.node.reads.confirmLeads(w.node.life.closing); err == nil {
				a.Index = w.node.progress.newest()
			}
		case askApplied:
			// While the files of a snapshot are fetched, raft stores nothing and has not applied it.
			a.Index = min(w.node.progress.applied.Load(), w.node.raft.AppliedIndex())
		case askCheck:
			a.Check, a.Index, err = w.node.checks.begin(w.node.life.closing, r.Database)
		case askSum:
			a = w.node.checks.answer(r.Check, w.node.life.closing.Done())
		default:
			err = fmt.Errorf("unknown request %q", r.Kind)
		}
		if err != nil {
			a.Error = err.Error()
		}
		if send(c, a) != nil {
			return
		}
	}
}

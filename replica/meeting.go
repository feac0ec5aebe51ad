// SPDX-License-Identifier: MIT

package replica

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"path"
	"slices"

	"github.com/hashicorp/raft"
)

// mayVote returns an error if the vote of a member does not count for this node.
func (w *wire) mayVote(id, address string) error {
	address = w.addressOf(id, address)
	v, ok := w.met.Load(address)
	if !ok {
		return nil
	}
	met := v.(meeting)
	if met.ID != id {
		return errOther(peer{id, address}, met.ID)
	}
	if err := w.node.membership.recognize(id, met.Directory); err != nil {
		return err
	}
	w.node.membership.mu.RLock()
	own := w.node.membership.dirs.Members[w.node.opts.ID]
	outdated := w.node.membership.dirs.Place > met.Known.Place && own.Directory != met.Known.Directory
	w.node.membership.mu.RUnlock()
	// A node whose log has come further may have been removed and added, and must be able to lead.
	if met.Known.Directory != 0 && met.Known.Directory != w.node.membership.directory && !outdated && !w.cameFurther(met.Known.Place>>12) {
		return w.node.membership.replaced(w.node.opts.ID, w.node.membership.directory)
	}
	return nil
}

// cameFurther reports whether this node has all entries up to an index. It does not know that
// while it starts: n.raft is not set yet when raft asks for the first votes.
func (w *wire) cameFurther(index uint64) bool {
	return w.node.role.running.Load() && w.node.raft.LastIndex() >= index
}

// peer is a member that is called: the node at an address must have the ID. "" is any, see Node.Meet.
type peer struct{ id, address string }

// errOther is returned if another node than the called one answers at its address.
func errOther(p peer, id string) error {
	return fmt.Errorf("replica: the node at %s is %q, and the member with this address is %q: start the member there, or remove it", p.address, id, p.id)
}

// versions are the versions of the wire protocol that a node speaks. A connection has the newest one that
// both ends speak, so nodes of two versions that follow one another work side by side while they are replaced
// one by one. Version 7 is version 6 whose hello and welcome name versions.
//
// A message or an operation of raft's log never changes its format. A new one belongs to a new version, and
// is used when all members speak that, see Member.Version.
type versions struct{ oldest, newest int }

var spoken = versions{6, 7}

// common returns the version of a connection, 0 if the two ends have none in common.
func (v versions) common(o versions) int {
	if c := min(v.newest, o.newest); c >= max(v.oldest, o.oldest) {
		return c
	}
	return 0
}

// hello begins each connection; welcome answers it.
type hello struct {
	Version int    `json:"version"`          // the oldest one that the caller speaks
	Newest  int    `json:"newest,omitempty"` // 0: that one
	Kind    string `json:"kind"`
	Cluster uint64 `json:"cluster"` // 0: not known yet
	From    string `json:"from"`
	Address string `json:"address"`
	// The directory of the caller, and the index of the last entry of its log.
	Directory uint64 `json:"directory"`
	Last      uint64 `json:"last"`
	// The member that is called, "" for Node.Meet, and its directory that the caller knows, 0 if it knows none.
	To          string `json:"to"`
	ToDirectory uint64 `json:"toDirectory"`
}

type welcome struct {
	Error     string          `json:"error,omitempty"`
	Version   int             `json:"version,omitempty"` // of the connection; 0 is 6
	ID        string          `json:"id,omitempty"`
	Cluster   uint64          `json:"cluster,omitempty"`
	Directory uint64          `json:"directory,omitempty"`
	Known     memberDirectory `json:"known"` // the recorded directory of the caller, if any
}

// versions returns what the caller speaks.
func (h *hello) versions() versions { return versions{h.Version, max(h.Version, h.Newest)} }

// judge returns the reason why a connection is refused, nil if it is accepted.
func (w *wire) judge(h *hello) error {
	n := w.node
	n.membership.mu.RLock()
	cluster := n.membership.cluster
	n.membership.mu.RUnlock()
	switch {
	case n.opts.versions.common(h.versions()) == 0:
		return fmt.Errorf("node %q speaks versions %d to %d of the protocol, and this node %d to %d: install a release between the two on all nodes first, or stop all nodes and start them with one release",
			h.From, h.Version, h.versions().newest, n.opts.versions.oldest, n.opts.versions.newest)
	case cluster != 0 && h.Cluster != 0 && cluster != h.Cluster:
		return fmt.Errorf("node %q belongs to cluster %016x, and this node to %016x: one of them has the directory of another cluster", h.From, h.Cluster, cluster)
	case h.From == n.opts.ID:
		return fmt.Errorf("node %q at %s has the same ID as the node at %s: start one of them with another ID, and a directory of its own", h.From, h.Address, w.address)
	case h.To != n.opts.ID && (h.To != "" || h.Kind != kindTerm):
		return fmt.Errorf("node %q at %s calls member %q, and the node at %s is %q: start the member there, or remove it", h.From, h.Address, h.To, w.address, n.opts.ID)
	case h.ToDirectory != 0 && h.ToDirectory != n.membership.directory:
		return n.membership.replaced(n.opts.ID, n.membership.directory)
	case !n.role.running.Load():
		return fmt.Errorf("node %q at %s is starting and still reads its log: connect again", n.opts.ID, w.address)
	}
	// A caller whose log has come further may have been removed and added.
	if err := n.membership.recognize(h.From, h.Directory); err != nil && h.Last < n.membership.recorded(h.From).Place>>12 {
		return err
	}
	// Without a leader this node may lack the entries that make the other one a member, and the
	// other one may be the leader that has them. Raft refuses votes for nodes that are no members.
	if _, leader := n.raft.LeaderWithID(); leader == "" && h.Kind == kindRaft && cluster != 0 && h.Cluster == cluster {
		return nil
	}
	f := n.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return err
	}
	members := f.Configuration().Servers
	for _, m := range members {
		if string(m.ID) == h.From {
			if string(m.Address) != h.Address && n.wire.peerOf(m).address != h.Address {
				return fmt.Errorf("node %q is at %s, and the member with this ID is at %s: another node uses the ID, or the member must be removed and added", h.From, h.Address, m.Address)
			}
			return nil
		}
	}
	if len(members) > 0 {
		return fmt.Errorf("node %q at %s is not a member of the cluster: add it on the leader, by Node.AddMember or ringside-replica add", h.From, h.Address)
	}
	return nil
}

// meeting is the answer of a member to a hello that was sent when this node knew the members of a
// configuration.
type meeting struct {
	welcome
	config uint64
}

// hello returns the first message of a connection to a member.
func (w *wire) hello(p peer, kind string) hello {
	n := w.node
	h := hello{Version: n.opts.versions.oldest, Newest: n.opts.versions.newest, Kind: kind, From: n.opts.ID, Address: w.address, Directory: n.membership.directory, To: p.id}
	if n.role.running.Load() {
		h.Last = n.raft.LastIndex()
	}
	n.membership.mu.RLock()
	h.Cluster = n.membership.cluster
	n.membership.mu.RUnlock()
	if n.role.running.Load() {
		if n.progress.applied.Load() >= n.store.members.Load() { // otherwise the member may have been removed and added
			h.ToDirectory = n.membership.recorded(p.id).Directory
		}
	}
	return h
}

// expected returns an error if the node that answered is not the one that was called.
func (w *wire) expected(p peer, a *welcome) error {
	n := w.node
	n.membership.mu.RLock()
	cluster := n.membership.cluster
	n.membership.mu.RUnlock()
	if a.Version == 0 {
		a.Version = 6
	}
	switch {
	case n.opts.versions.common(versions{a.Version, a.Version}) == 0:
		return fmt.Errorf("replica: node %q at %s answered in version %d of the protocol, and this node speaks %d to %d", a.ID, p.address, a.Version, n.opts.versions.oldest, n.opts.versions.newest)
	case p.id == "":
		return nil
	case a.ID != p.id:
		return errOther(p, a.ID)
	case cluster != 0 && a.Cluster != 0 && cluster != a.Cluster:
		return fmt.Errorf("replica: node %q at %s belongs to cluster %016x, and this node to %016x: one of them has the directory of another cluster", a.ID, p.address, a.Cluster, cluster)
	}
	return n.membership.recognize(p.id, a.Directory)
}

// certified returns an error if the node at the other end of a TLS connection has a certificate that
// does not name its ID.
func certified(c net.Conn, id string) error {
	t, ok := c.(*tls.Conn)
	if !ok {
		return nil
	}
	var leaf *x509.Certificate
	if chain := t.ConnectionState().PeerCertificates; len(chain) > 0 {
		leaf = chain[0]
	}
	if leaf == nil {
		return fmt.Errorf("replica: node %q has no certificate", id)
	}
	names := append([]string{leaf.Subject.CommonName}, leaf.DNSNames...)
	for _, u := range leaf.URIs {
		names = append(names, u.String(), path.Base(u.Path))
	}
	if slices.Contains(names, id) {
		return nil
	}
	return fmt.Errorf("replica: the certificate of node %q is for %q: its common name, one of its DNS names, or the end of a URI must be the node's ID", id, names)
}

// is returns an error if the node at the other end of a connection is not a member, or has forgotten
// what it acknowledged. It is called after an answer: an unused connection may be one to an earlier process.
func (w *wire) is(c memberConn, id raft.ServerID, target raft.ServerAddress) error {
	if c.id != id {
		return errOther(peer{string(id), string(target)}, string(c.id))
	}
	return w.node.membership.recognize(string(id), c.directory)
}

// addressOf returns the address of a member: that of Options.Addresses, as long as raft's log has the one that
// it had when the node was opened.
func (w *wire) addressOf(id, recorded string) string {
	if to := w.node.opts.Addresses[id]; to != "" && w.before[id] == recorded {
		return to
	}
	return recorded
}

// peerOf returns what is called for a member.
func (w *wire) peerOf(m raft.Server) peer {
	return peer{string(m.ID), w.addressOf(string(m.ID), string(m.Address))}
}

// version returns the version of the protocol in which this node last spoke with a member, 0 if it has not.
func (w *wire) version(m raft.Server) int {
	if string(m.ID) == w.node.opts.ID {
		return w.node.opts.versions.newest
	}
	if v, ok := w.met.Load(w.peerOf(m).address); ok && v.(meeting).ID == string(m.ID) {
		return v.(meeting).Version
	}
	return 0
}

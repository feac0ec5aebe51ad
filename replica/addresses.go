// SPDX-License-Identifier: MIT

package replica

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// loss describes the node before it is recovered.
func (n *Node) loss(snapshots raft.SnapshotStore) (l Loss, err error) {
	l.Cluster = fmt.Sprintf("%016x", n.membership.cluster)
	list, err := snapshots.List()
	if err != nil {
		return l, err
	}
	var members raft.Configuration
	if len(list) > 0 {
		l.LastEntry, l.Term, members = list[0].Index, list[0].Term, list[0].Configuration
	}
	first, ferr := n.store.FirstIndex()
	last, err := n.store.LastIndex()
	if err = errors.Join(ferr, err); err != nil {
		return l, err
	}
	for i := max(first, 1); i <= last; i++ {
		var e raft.Log
		if err := n.store.GetLog(i, &e); err != nil {
			return l, err
		}
		if e.Type == raft.LogConfiguration {
			members = raft.DecodeConfiguration(e.Data)
		}
		if e.Index >= l.LastEntry {
			l.LastEntry, l.Term, l.Appended = e.Index, e.Term, e.AppendedAt
		}
	}
	if l.LastEntry == 0 {
		return l, fmt.Errorf("replica: %s was never a member of a cluster: there is nothing to recover", n.opts.Dir)
	}
	for _, m := range members.Servers {
		l.Members = append(l.Members, Member{ID: string(m.ID), Address: string(m.Address), Voter: m.Suffrage == raft.Voter})
	}
	return l, nil
}

// readdress records the addresses of Options.Addresses in raft's log. This node leads.
func (n *Node) readdress() {
	ids := make([]string, 0, len(n.opts.Addresses))
	for id := range n.opts.Addresses {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		m, known := n.member(id)
		to := n.wire.addressOf(id, string(m.Address))
		if !known || to == string(m.Address) {
			continue
		}
		change := n.raft.AddNonvoter
		if m.Suffrage == raft.Voter {
			change = n.raft.AddVoter
		}
		err := n.change(n.life.closing, func(d time.Duration) raft.Future { return change(m.ID, raft.ServerAddress(to), 0, d) })
		if err != nil {
			n.log.Warn("replica: the new address of a member is not recorded yet", "member", id, "address", to, "error", err)
			return // the next leader tries again
		}
		n.log.Info("replica: the new address of a member is recorded", "member", id, "address", to)
	}
}

// comparePeers warns if the members of an existing cluster are others than Options.Peers, which is not used.
func (n *Node) comparePeers() {
	f := n.raft.GetConfiguration()
	if f.Error() != nil {
		return
	}
	members := make(map[string]string)
	for _, m := range f.Configuration().Servers {
		members[string(m.ID)] = string(m.Address)
	}
	same := len(members) == len(n.opts.Peers)
	for id, address := range n.opts.Peers {
		same = same && members[id] == address
	}
	if !same {
		n.log.Warn("replica: Options.Peers is not used, because the directory belongs to a cluster already: use AddMember and RemoveMember, Options.Addresses if all addresses have changed, or Recover if a majority is lost",
			"peers", n.opts.Peers, "members", members)
	}
}

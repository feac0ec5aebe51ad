// SPDX-License-Identifier: MIT

package replica

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"
)

// Member is a node of the cluster.
type Member struct {
	ID, Address string
	Voter       bool // counts for majorities, see [Node.AddMember]
	// Version is that of the protocol in which this node last spoke with it, 0 if it has not. When the leader has
	// the newest one for all members, none has to be replaced any more.
	Version int
}

// AddMember makes a node a member that counts for majorities. The leader must be this node.
//
// The node first becomes a member that does not vote: it gets the log and the databases, and counts for
// nothing. When it has caught up, AddMember makes it a voter and returns. A round of catching up ends when
// the node has what the leader had at its begin; the node has caught up after a round that is shorter than
// Options.Election.
//
// If ctx ends while the node catches up, the error matches that of ctx and not ErrUncertain. The node stays a member that
// does not vote, and goes on to catch up. A later AddMember completes the change, also on another leader:
// if this node ceases to lead meanwhile, the error is a *NotLeaderError, or matches ErrUncertain.
// If the ID is already a member, AddMember changes its address, and a voter stays one.
func (n *Node) AddMember(ctx context.Context, id, address string) error {
	for added := false; ; {
		n.membership.mu.RLock()
		config := n.membership.dirs.Config // raft refuses a change if another one came after it
		n.membership.mu.RUnlock()
		m, known := n.member(id)
		votes, change := true, n.raft.AddVoter
		switch {
		case known && m.Suffrage == raft.Voter:
		case !known && added:
			return removedMeanwhile(id)
		case !known || string(m.Address) != address:
			votes, change = false, n.raft.AddNonvoter
		default:
			added = true
			if err := n.awaitMember(ctx, m); err != nil {
				return err
			}
		}
		err := n.change(ctx, func(d time.Duration) raft.Future {
			return change(raft.ServerID(id), raft.ServerAddress(address), config, d)
		})
		if err == nil && votes {
			return nil
		}
		added = added || err == nil
		if errors.Is(err, errReconfigured) {
			err = n.pause(ctx)
		}
		if err != nil {
			return err
		}
	}
}

func removedMeanwhile(id string) error {
	return fmt.Errorf("replica: member %q was removed while it caught up", id)
}

// member returns a member of the latest configuration.
func (n *Node) member(id string) (m raft.Server, ok bool) {
	f := n.raft.GetConfiguration()
	if f.Error() != nil {
		return m, false
	}
	members := f.Configuration().Servers
	i := slices.IndexFunc(members, func(m raft.Server) bool { return string(m.ID) == id })
	if i < 0 {
		return m, false
	}
	return members[i], true
}

// awaitMember waits until a member that does not vote has caught up.
func (n *Node) awaitMember(ctx context.Context, m raft.Server) error {
	for {
		begin, target := time.Now(), n.progress.newest()
		for {
			has, err := n.wire.progress(ctx, m)
			if err == nil && has >= target {
				break
			}
			now, known := n.member(string(m.ID))
			if !known {
				return removedMeanwhile(string(m.ID))
			} else if now != m {
				return nil // by another call
			}
			if perr := n.pause(ctx); perr != nil && n.role.leader() != nil {
				if err == nil {
					err = fmt.Errorf("it has come to entry %d of %d", has, target)
				}
				return fmt.Errorf("replica: %q at %s is a member and does not vote yet, because it has not caught up: %w: %w", m.ID, m.Address, perr, err)
			} else if perr != nil {
				return perr
			}
		}
		if time.Since(begin) < n.opts.Election {
			return nil
		}
	}
}

// pause waits for a short time. It returns an error if this node does not lead, or ctx is done.
func (n *Node) pause(ctx context.Context) error {
	select {
	case <-time.After(n.opts.Election / 20):
	case <-ctx.Done():
	case <-n.life.closing.Done():
	}
	return cmp.Or(n.role.writable(), ctx.Err())
}

// RemoveMember removes a node. The leader must be this node; it may remove itself. It returns an error if the ID
// is not a member.
func (n *Node) RemoveMember(ctx context.Context, id string) error {
	if err := n.role.writable(); err != nil {
		return err
	}
	if _, known := n.member(id); !known {
		return n.noMember(id)
	}
	return n.change(ctx, func(d time.Duration) raft.Future {
		return n.raft.RemoveServer(raft.ServerID(id), 0, d)
	})
}

// Transfer transfers the leadership to a member; "" means any that is up to date. The leader must
// be this node.
func (n *Node) Transfer(ctx context.Context, id string) error {
	return n.change(ctx, func(time.Duration) raft.Future {
		if id == "" {
			return n.raft.LeadershipTransfer()
		}
		for _, m := range n.Status().Members {
			if m.ID == id && !m.Voter {
				return failed{fmt.Errorf("replica: member %q does not vote yet and cannot lead: add it again", id)}
			}
			if m.ID == id {
				return n.raft.LeadershipTransferToServer(raft.ServerID(id), raft.ServerAddress(m.Address))
			}
		}
		return failed{n.noMember(id)}
	})
}

// noMember is the error for an ID that is no member.
func (n *Node) noMember(id string) error {
	var members []string
	for _, m := range n.Status().Members {
		members = append(members, m.ID)
	}
	return fmt.Errorf("replica: %q is not a member of the cluster: its members are %q", id, members)
}

// errReconfigured is in the error of a change of the members that another one came before.
var errReconfigured = errors.New("replica: the members have changed")

type failed struct{ err error }

func (f failed) Error() error { return f.err }

func (n *Node) change(ctx context.Context, f func(time.Duration) raft.Future) error {
	if err := n.role.writable(); err != nil {
		return err
	}
	timeout := 10 * time.Second
	if d, ok := ctx.Deadline(); ok {
		timeout = time.Until(d)
	}
	done := make(chan error, 1)
	go func() {
		future := f(timeout)
		n.store.note()
		done <- future.Error()
	}()
	s := n.proposer.newStall(time.Now())
	defer s.timer.Stop()
	var err error
	for err == nil {
		select {
		case err := <-done:
			return n.changed(err)
		case <-ctx.Done():
			err = ctx.Err()
		case <-n.life.closing.Done():
			err = raft.ErrRaftShutdown
		case <-s.timer.C:
			err = s.over()
		}
	}
	return &UncertainError{Err: err}
}

// changed translates raft's errors of a change.
func (n *Node) changed(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader):
		return n.role.notLeader()
	case errors.Is(err, raft.ErrLeadershipLost):
		return &UncertainError{Err: err}
	case err != nil && strings.HasPrefix(err.Error(), "configuration changed since"): // raft has no value for it
		return fmt.Errorf("%w: %w", errReconfigured, err)
	}
	return err
}

// recordMembers proposes to record the directories of members that this node has met while it
// leads.
func (w *wire) recordMembers() {
	for {
		select {
		case <-w.node.life.closing.Done():
			return
		case <-w.node.membership.unknown:
		}
		w.node.membership.mu.RLock()
		config := w.node.membership.dirs.Config
		w.node.membership.mu.RUnlock()
		f := w.node.raft.GetConfiguration()
		if w.node.role.leader() == nil || f.Error() != nil {
			continue
		}
		for _, m := range f.Configuration().Servers {
			directory := w.node.membership.directory
			if string(m.ID) != w.node.opts.ID {
				v, ok := w.met.Load(w.peerOf(m).address)
				if !ok {
					continue
				}
				met := v.(meeting)
				w.node.membership.mu.RLock()
				least := max(w.node.membership.absent[string(m.ID)], w.node.membership.adopted)
				w.node.membership.mu.RUnlock()
				if met.config < least {
					// A member that was removed and added may have a new directory since it was met.
					ctx, cancel := context.WithTimeout(w.node.life.closing, w.node.opts.Election)
					c, err := w.dial(ctx, w.peerOf(m), kindTerm)
					cancel()
					if err != nil {
						continue // raft connects to it later
					}
					_ = c.Close()
					v, _ = w.met.Load(w.peerOf(m).address)
					met = v.(meeting)
				}
				if met.ID != string(m.ID) || met.config < least {
					continue
				}
				directory = met.Directory
			}
			w.node.membership.mu.RLock()
			known, ok := w.node.membership.dirs.Members[string(m.ID)]
			w.node.membership.mu.RUnlock()
			switch {
			case ok && known.Directory != directory:
				_ = w.node.membership.replaced(string(m.ID), directory)
			case !ok && directory != 0:
				rest := binary.LittleEndian.AppendUint64(nil, config)
				rest = binary.LittleEndian.AppendUint64(rest, directory)
				_ = w.node.proposer.commit(w.node.life.closing, opMember, append(rest, m.ID...)) // the next leader tries again
			}
		}
	}
}

// Meet connects to the node at an address and returns its ID. That node need not be a member.
// For its own address this node answers without a connection. Meet returns an error if no node
// answers before ctx is done, or within 10 seconds. It also returns an error if that node refuses
// this one, for example because it belongs to another cluster.
func (n *Node) Meet(ctx context.Context, address string) (id string, err error) {
	if address == n.Address() {
		return n.ID(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c, answer, err := n.wire.meet(ctx, peer{address: address}, kindTerm)
	if err != nil {
		return "", err
	}
	return answer.ID, c.Close()
}

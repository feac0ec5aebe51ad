// SPDX-License-Identifier: MIT

package replica

import (
	"context"
	"encoding/binary"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// layer is the wire as raft's StreamLayer. Raft closes it before the node closes the wire.
type layer struct{ *wire }

func (layer) Close() error { return nil }

// transport is raft's transport with a bound for its waits: raft 1.8 stops reading the
// answers of a pipeline after one that failed, and may then wait forever to send the next
// entries. The follower would get none until the next election, and Shutdown would not
// return.
//
// It counts the requests without a reply, which tells a pipeline that the member may have been
// started again.
type transport struct {
	network
	patience time.Duration
	failures *failures
	beats    beats
	log      *notedLog
	mayVote  func(id, address string) error
	mayLead  func() error    // see fitness
	cut      func(id string) // closes raft's connections to a member
	// newSnapshot is called after a member has refused a snapshot because its own is newer.
	newSnapshot func()
}

// network is what a node needs of a transport.
type network interface {
	raft.Transport
	raft.WithPreVote
	raft.WithClose
	// MemberTerm asks a member for its current term until a time. The member stores a term
	// durably before it answers with it.
	MemberTerm(id raft.ServerID, target raft.ServerAddress, until time.Time) (uint64, error)
}

// base is raft's transport, and the requests for terms beside it. Raft's transport finds its connections by
// the address only, so base puts the member's ID before it: a connection to a member is one to this member
// and no other, see wire.Dial.
type base struct {
	*raft.NetworkTransport
	wire *wire
}

// called returns a member's ID and its address.
func (b base) called(id raft.ServerID, target raft.ServerAddress) raft.ServerAddress {
	return raft.ServerAddress(string(id) + "\x00" + b.wire.node.wire.addressOf(string(id), string(target)))
}

func (b base) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	return b.NetworkTransport.AppendEntries(id, b.called(id, target), args, resp)
}

func (b base) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	return b.NetworkTransport.AppendEntriesPipeline(id, b.called(id, target))
}

func (b base) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	return b.NetworkTransport.InstallSnapshot(id, b.called(id, target), args, resp, data)
}

func (b base) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return b.NetworkTransport.RequestVote(id, b.called(id, target), args, resp)
}

func (b base) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	return b.NetworkTransport.RequestPreVote(id, b.called(id, target), args, resp)
}

func (b base) TimeoutNow(id raft.ServerID, target raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	return b.NetworkTransport.TimeoutNow(id, b.called(id, target), args, resp)
}

// allowed returns the result of mayLead, which is nil in tests.
func allowed(mayLead func() error) error {
	if mayLead == nil {
		return nil
	}
	return mayLead()
}

func (t transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if err := allowed(t.mayLead); err != nil {
		return err
	}
	heartbeat := args.PrevLogEntry == 0 && args.LeaderCommitIndex == 0 && len(args.Entries) == 0
	if heartbeat && !t.failures.last(id) {
		t.beats.wait()
	}
	err := t.log.load(args)
	if err != nil {
		return err
	}
	err = t.network.AppendEntries(id, target, args, resp)
	if err == nil {
		t.log.holds.progress(id, args.PrevLogEntry)
	}
	if t.failures.note(id, err != nil); err != nil {
		t.log.note() // the pipeline sends the commit index again
	}
	return err
}

func (t transport) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	hold := func(bool) {}
	if t.log != nil { // nil in a test
		// The member fetches the files before it answers, and then needs the entries behind the snapshot.
		hold = t.log.holds.begin(id, args.LastLogIndex)
		answered := make(chan struct{})
		defer close(answered)
		go t.giveUpOn(id, answered)
	}
	err := t.network.InstallSnapshot(id, target, args, resp, data)
	hold(err == nil && resp.Success)
	if err != nil && strings.Contains(err.Error(), olderSnapshot) {
		t.newSnapshot()
	}
	return err
}

// deadAfter is for how long heartbeats to a member fail before a snapshot is no longer sent to it.
const deadAfter = 30 * time.Second

// giveUpOn ends the transfer of a snapshot to a member that answers no heartbeats. The transfer itself may take any
// time: a member that has to begin again fetches all files again.
func (t transport) giveUpOn(id raft.ServerID, answered <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-answered:
			return
		case <-t.beats.closing:
			return
		case <-tick.C:
		}
		if t.failures.lasting(id) > deadAfter && t.cut != nil {
			t.cut(string(id))
		}
	}
}

// beats are the times of heartbeats. Raft sends one to each member 10 to 20 times per heartbeat
// timeout, at random times. Most of what an idle node costs is waking up for them, so they wait for
// common times: six per Options.Election, and six per second if that is longer.
type beats struct {
	begin    time.Time
	interval time.Duration
	closing  <-chan struct{}
}

func (b beats) wait() {
	timer := time.NewTimer(b.interval - time.Since(b.begin)%b.interval)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.closing:
	}
}

// RequestVote asks for a vote. The connection may be made by the call, so whether the vote counts
// is known afterwards.
func (t transport) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if err := allowed(t.mayLead); err != nil {
		return err
	}
	err := t.network.RequestVote(id, target, args, resp)
	if err == nil {
		err = t.mayVote(string(id), string(target))
	}
	return err
}

func (t transport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if err := allowed(t.mayLead); err != nil {
		return err
	}
	err := t.network.RequestPreVote(id, target, args, resp)
	if err == nil {
		err = t.mayVote(string(id), string(target))
	}
	return err
}

func (t transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	p, err := t.network.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	return &pipeline{AppendPipeline: p, id: id, failures: t.failures, patience: t.patience, log: t.log, closing: t.beats.closing, mayLead: t.mayLead}, nil
}

// failures counts the requests to each member that had no reply, heartbeats among them.
type failures struct {
	mu    sync.Mutex
	count map[raft.ServerID]int
	now   map[raft.ServerID]bool      // the last request failed
	since map[raft.ServerID]time.Time // when the first of them failed that failed in a row
}

func (f *failures) note(id raft.ServerID, failed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count == nil {
		f.count, f.now, f.since = make(map[raft.ServerID]int), make(map[raft.ServerID]bool), make(map[raft.ServerID]time.Time)
	}
	if failed && !f.now[id] {
		f.since[id] = time.Now()
	}
	if f.now[id] = failed; failed {
		f.count[id]++
	}
}

// of returns the number of failures of a member.
func (f *failures) of(id raft.ServerID) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count[id]
}

// last reports whether the last request to a member failed.
func (f *failures) last(id raft.ServerID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now[id]
}

// lasting returns for how long the requests to a member have failed.
func (f *failures) lasting(id raft.ServerID) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.now[id] {
		return 0
	}
	return time.Since(f.since[id])
}

// pipeline sends entries to a member. Without new entries raft sends a request some 13 times
// per second, for the commit index. The pipeline leaves out requests that tell the member
// nothing new, but sends one per patience, and one after a heartbeat that failed: the member
// may have been started again and need the commit index. When nothing has been stored or
// committed since the last call, a call that would send nothing waits for that, for at most
// mostQuiet: each call costs the leader a timer.
type pipeline struct {
	raft.AppendPipeline
	id       raft.ServerID
	failures *failures
	patience time.Duration
	log      *notedLog
	closing  <-chan struct{}
	mayLead  func() error

	sent   time.Time // of the last request; the zero time if there was none
	commit uint64    // its commit index
	failed int       // failures of requests to the member before it
	seen   uint64    // changes of the log before the last call that sent nothing
}

// mostQuiet is how long raft's goroutine for a member may wait in a pipeline. What the goroutine
// must take notice of calls notedLog.note: entries, commits, failures of heartbeats, and changes of
// the members and of the leadership that this node requests.
const mostQuiet = time.Second

// redundant reports whether a request tells the member nothing new. Raft calls AppendEntries
// from one goroutine.
func (p *pipeline) redundant(args *raft.AppendEntriesRequest) bool {
	failed := p.failures.of(p.id)
	if len(args.Entries) == 0 && !p.sent.IsZero() && args.LeaderCommitIndex == p.commit && failed == p.failed && time.Since(p.sent) < p.patience {
		return true
	}
	p.sent, p.commit, p.failed = time.Now(), args.LeaderCommitIndex, failed
	return false
}

func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if err := allowed(p.mayLead); err != nil {
		return nil, err
	}
	if p.redundant(args) {
		// Raft does not use the result. It counts replies from Consumer as contacts with the
		// member, and there is none.
		p.seen = p.log.await(p.seen, mostQuiet, p.closing)
		return nil, nil
	}
	if err := p.log.load(args); err != nil {
		return nil, err
	}
	// Raft opens another pipeline after this one was closed.
	p.log.holds.progress(p.id, args.PrevLogEntry)
	timer := time.AfterFunc(p.patience, func() { _ = p.Close() })
	defer timer.Stop()
	return p.AppendPipeline.AppendEntries(args, resp)
}

// MemberTerm implements network.
func (b base) MemberTerm(id raft.ServerID, target raft.ServerAddress, until time.Time) (uint64, error) {
	w := b.wire
	ctx, cancel := context.WithDeadline(w.node.life.closing, until)
	defer cancel()
	var p [8]byte
	err := w.request(ctx, peer{string(id), w.node.wire.addressOf(string(id), string(target))}, kindTerm, func(c memberConn) error {
		_, err := c.Write(p[:1])
		if err == nil {
			_, err = io.ReadFull(c, p[:])
		}
		if err == nil {
			err = w.is(c, id, target)
		}
		return err
	})
	return binary.LittleEndian.Uint64(p[:]), err
}

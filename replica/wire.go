// SPDX-License-Identifier: MIT

package replica

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringside-io/ringside/appendlog"
	"github.com/ringside-io/ringside/replica/internal/raftlog"
	"github.com/ringside-io/ringside/unet"
)

// wire connects the nodes: raft's messages, requests, and files each have their own
// connections to one listener.
type wire struct {
	node      *Node
	listener  net.Listener
	address   string
	accepted  chan net.Conn // for raft
	transport *raft.NetworkTransport
	over      sync.WaitGroup
	once      sync.Once

	met   sync.Map // the latest meeting by address
	calls sync.Map // the member's ID by raft's connection to it

	mu    sync.Mutex
	conns map[net.Conn]struct{} // that this node serves, raft's, and those for its own requests; nil after cut
	idle  map[idleKey][]memberConn
}

// idleKey is what unused connections for requests are found by.
type idleKey struct {
	peer
	kind string
}

// layer is the wire as raft's StreamLayer. Raft closes it before the node closes the wire.
type layer struct{ *wire }

var _ raft.StreamLayer = layer{}

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
	return raft.ServerAddress(string(id) + "\x00" + b.wire.node.addressOf(string(id), string(target)))
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

// peer is a member that is called: the node at an address must have the ID. "" is any, see Node.Meet.
type peer struct{ id, address string }

// errOther is returned if another node than the called one answers at its address.
func errOther(p peer, id string) error {
	return fmt.Errorf("replica: the node at %s is %q, and the member with this address is %q: start the member there, or remove it", p.address, id, p.id)
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

// requestBytes is the size from which a request has no further entry.
const requestBytes = 16 << 20

// load reads the data that raftLog has left out of the entries of a request. It leaves entries out of a request
// that is too large: raft limits their number only, and 64 large transactions exceed the memory, or the time that
// a request may take. Raft looks at the entries again after the request and sends those that were left out with
// the next one.
func (l *notedLog) load(args *raft.AppendEntriesRequest) error {
	size := 0
	for i, e := range args.Entries {
		if err := l.fill(e); err != nil {
			return err
		}
		if size += len(e.Data); size > requestBytes && i > 0 {
			e.Data = nil
			args.Entries = args.Entries[:i]
			return nil
		}
	}
	return nil
}

// fill reads the data of an entry that raftLog has left out.
func (l *notedLog) fill(e *raft.Log) error {
	if len(e.Data) > 0 || e.Type != raft.LogCommand {
		return nil
	}
	var full raft.Log
	if err := l.GetLog(e.Index, &full); err != nil {
		return err
	}
	if full.Term != e.Term {
		return fmt.Errorf("replica: entry %d of term %d was replaced", e.Index, e.Term)
	}
	e.Data = full.Data
	return nil
}

// raftLog is the log for raft. It leaves out the data of large entries: raft reads up to 64 entries
// for each follower at once, and puts thousands into the queue of the state machine. It needs their indexes and terms. The
// transport and the state machine read the data when they use them.
type raftLog struct{ *notedLog }

// GetLog implements raft.LogStore.
func (l raftLog) GetLog(index uint64, e *raft.Log) error {
	if l.Head(index, e) && e.Type == raft.LogCommand {
		return nil
	}
	return l.notedLog.GetLog(index, e)
}

// notedLog is raft's log. It counts when entries were stored or committed, and marks how far it has come.
type notedLog struct {
	*raftlog.Store
	mark    *logMark
	fitness *fitness
	holds   holds
	members atomic.Uint64 // no later entry changes the members
	mu      sync.Mutex
	changes uint64
	changed chan struct{} // closed by the next change; nil if no goroutine waits
}

// StoreLog and StoreLogs implement raft.LogStore. Raft sends the entries afterwards.
func (l *notedLog) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

func (l *notedLog) StoreLogs(all []*raft.Log) error {
	defer l.note()
	end := l.fitness.begin(true)
	err := l.Store.StoreLogs(all)
	end()
	if err != nil && l.fitness != nil && !errors.Is(err, raftlog.ErrOrder) && !errors.Is(err, appendlog.ErrRecordTooLarge) {
		l.fitness.logFailed(err)
	}
	for _, e := range all {
		if e.Type == raft.LogConfiguration {
			l.members.Store(e.Index)
		}
	}
	if err == nil && len(all) > 0 {
		last := all[len(all)-1]
		_ = l.mark.note(func(s *markState) { s.last, s.lastTerm = last.Index, last.Term }) // it was logged
	}
	return err
}

// DeleteRange implements raft.LogStore.
func (l *notedLog) DeleteRange(low, high uint64) error {
	if last, err := l.LastIndex(); err != nil {
		return err
	} else if last > 0 && high >= last {
		if err := l.mark.setBack(low); err != nil {
			return err
		}
	} else if keep := l.holds.first(l.Store); keep <= high {
		if high = keep - 1; high < low {
			return nil // raft tries again after the next snapshot
		}
	}
	return l.Store.DeleteRange(low, high)
}

// SetUint64 implements raft.StableStore.
func (l *notedLog) SetUint64(key []byte, v uint64) error {
	err := l.Store.SetUint64(key, v)
	// A store that was stopped returns nil and stores nothing.
	if now, _ := l.GetUint64(key); err == nil && now == v && string(key) == "CurrentTerm" {
		_ = l.mark.note(func(s *markState) { s.term = v })
	}
	return err
}

// note counts a change.
func (l *notedLog) note() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes++
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// await waits until the number of changes is not seen, for at most a time. It returns the number.
func (l *notedLog) await(seen uint64, most time.Duration, closing <-chan struct{}) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changes != seen {
		return l.changes
	}
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	changed := l.changed
	l.mu.Unlock()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-closing:
	}
	l.mu.Lock()
	return l.changes
}

// wireAddr is an address in the form of the configuration.
type wireAddr string

func (wireAddr) Network() string  { return "tcp" }
func (a wireAddr) String() string { return string(a) }

func listen(n *Node) (*wire, error) {
	l, err := unet.Listen("tcp", n.opts.Listen)
	if err != nil {
		return nil, fmt.Errorf("replica: Options.Listen: %w", err)
	}
	w := &wire{node: n, listener: l, address: cmp.Or(n.opts.Advertise, n.opts.Addresses[n.opts.ID]), accepted: make(chan net.Conn),
		conns: make(map[net.Conn]struct{}), idle: make(map[idleKey][]memberConn)}
	if w.address == "" {
		w.address = n.opts.Peers[n.opts.ID]
	}
	if w.address == "" {
		w.address = l.Addr().String()
	}
	if n.opts.TLS == nil && !n.opts.PlainText {
		if host, _, err := net.SplitHostPort(l.Addr().String()); err != nil || !net.ParseIP(host).IsLoopback() {
			return nil, errors.Join(fmt.Errorf("replica: %s is no loopback address, and nodes would talk in plain text: set Options.TLS, or Options.PlainText to allow that", l.Addr()), l.Close())
		}
	}
	if c := n.opts.TLS; c != nil && c.ClientAuth != tls.RequireAndVerifyClientCert {
		return nil, errors.Join(errors.New("replica: Options.TLS does not verify the other nodes: set ClientAuth to tls.RequireAndVerifyClientCert"), l.Close())
	}
	w.over.Go(w.serve)
	return w, nil
}

// The kinds of connections.
const (
	kindRaft    = "raft"
	kindRequest = "request"
	kindFetch   = "fetch"
	kindForward = "forward"
	kindTerm    = "term"
)

const wireVersion = 6

// hello begins each connection; welcome answers it.
type hello struct {
	Version int    `json:"version"`
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
	ID        string          `json:"id,omitempty"`
	Cluster   uint64          `json:"cluster,omitempty"`
	Directory uint64          `json:"directory,omitempty"`
	Known     memberDirectory `json:"known"` // the recorded directory of the caller, if any
}

func send(w io.Writer, v any) error {
	p, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(p))), p...))
	return err
}

func receive(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > 16<<20 {
		return fmt.Errorf("replica: a message of %d bytes, more than any of this protocol: the peer is no node of this version", n)
	}
	p := make([]byte, n)
	if _, err := io.ReadFull(r, p); err != nil {
		return err
	}
	return json.Unmarshal(p, v)
}

// helloTimeout is how long a new connection may take to send its hello.
const helloTimeout = 5 * time.Second

// serve accepts connections. An error may pass, for example if the process has too many open files.
func (w *wire) serve() {
	wait := time.Duration(0)
	for {
		c, err := w.listener.Accept()
		if err == nil {
			wait = 0
			w.over.Go(func() { w.welcome(c) })
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if wait == 0 {
			w.node.log.Error("replica: no connection can be accepted for now", "error", err)
		}
		wait = min(max(2*wait, 5*time.Millisecond), time.Second)
		select {
		case <-time.After(wait):
		case <-w.node.closing.Done():
			return
		}
	}
}

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
	n.mu.RLock()
	known, cluster := n.dirs.Members[h.From], n.cluster
	n.mu.RUnlock()
	if send(c, welcome{ID: n.opts.ID, Cluster: cluster, Directory: n.directory, Known: known}) != nil || c.SetDeadline(time.Time{}) != nil {
		w.drop(c)
		return
	}
	switch h.Kind {
	case kindRaft:
		select {
		case w.accepted <- c:
		case <-w.node.closing.Done():
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

// judge returns the reason why a connection is refused, nil if it is accepted.
func (w *wire) judge(h *hello) error {
	n := w.node
	n.mu.RLock()
	cluster := n.cluster
	n.mu.RUnlock()
	switch {
	case h.Version != wireVersion:
		return fmt.Errorf("node %q has protocol version %d, and this node has %d: run the same version on all nodes", h.From, h.Version, wireVersion)
	case cluster != 0 && h.Cluster != 0 && cluster != h.Cluster:
		return fmt.Errorf("node %q belongs to cluster %016x, and this node to %016x: one of them has the directory of another cluster", h.From, h.Cluster, cluster)
	case h.From == n.opts.ID:
		return fmt.Errorf("node %q at %s has the same ID as the node at %s: start one of them with another ID, and a directory of its own", h.From, h.Address, w.address)
	case h.To != n.opts.ID && (h.To != "" || h.Kind != kindTerm):
		return fmt.Errorf("node %q at %s calls member %q, and the node at %s is %q: start the member there, or remove it", h.From, h.Address, h.To, w.address, n.opts.ID)
	case h.ToDirectory != 0 && h.ToDirectory != n.directory:
		return n.replaced(n.opts.ID, n.directory)
	case !n.running.Load():
		return fmt.Errorf("node %q at %s is starting and still reads its log: connect again", n.opts.ID, w.address)
	}
	// A caller whose log has come further may have been removed and added.
	if err := n.recognize(h.From, h.Directory); err != nil && h.Last < n.recorded(h.From).Place>>12 {
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
			if string(m.Address) != h.Address && n.peerOf(m).address != h.Address {
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

func (w *wire) track(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conns == nil {
		return false
	}
	w.conns[c] = struct{}{}
	return true
}

func (w *wire) drop(c net.Conn) {
	w.mu.Lock()
	delete(w.conns, c)
	w.mu.Unlock()
	w.calls.Delete(c)
	_ = c.Close()
}

// Accept gives raft a connection.
func (w *wire) Accept() (net.Conn, error) {
	select {
	case c := <-w.accepted:
		return &tracked{c, w}, nil
	case <-w.node.closing.Done():
		return nil, net.ErrClosed
	}
}

type tracked struct {
	net.Conn
	w *wire
}

func (c *tracked) Close() error {
	c.w.drop(c.Conn)
	return nil
}

// Addr returns the address by which other nodes reach this one.
func (w *wire) Addr() net.Addr { return wireAddr(w.address) }

// Dial gives raft a connection to a member.
func (w *wire) Dial(target raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(w.node.closing, timeout)
	defer cancel()
	id, address, _ := strings.Cut(string(target), "\x00")
	c, err := w.dial(ctx, peer{id, address}, kindRaft)
	if err != nil {
		return nil, err
	}
	if !w.track(c) {
		return nil, errors.Join(net.ErrClosed, c.Close())
	}
	w.calls.Store(c, id)
	return &tracked{c, w}, nil
}

// cutPeer closes raft's connections to a member.
func (w *wire) cutPeer(id string) {
	w.calls.Range(func(c, to any) bool {
		if to == id {
			w.drop(c.(net.Conn))
		}
		return true
	})
}

func (w *wire) dial(ctx context.Context, p peer, kind string) (net.Conn, error) {
	w.node.mu.RLock()
	config := w.node.dirs.Config
	w.node.mu.RUnlock()
	c, answer, err := w.meet(ctx, p, kind)
	if err == nil {
		w.met.Store(p.address, meeting{answer, config})
		if kind == kindRaft {
			w.node.lookAtMembers()
		}
	}
	return c, err
}

// meeting is the answer of a member to a hello that was sent when this node knew the members of a
// configuration.
type meeting struct {
	welcome
	config uint64
}

// meet connects to a member and returns its answer to the hello. Both sides refuse a node with another ID,
// another cluster, or another directory than the recorded one. A process that is stopped accepts
// connections and does not answer, so meet waits no longer than askTimeout without a deadline of ctx.
func (w *wire) meet(ctx context.Context, p peer, kind string) (net.Conn, welcome, error) {
	var answer welcome
	ctx, cancel := w.bound(ctx, askTimeout)
	defer cancel()
	var d unet.Dialer
	c, err := d.DialContext(ctx, "tcp", p.address)
	if err != nil {
		return nil, answer, err
	}
	if o := w.node.opts.TLS; o != nil {
		o = o.Clone()
		if o.ServerName == "" {
			o.ServerName, _, _ = net.SplitHostPort(p.address)
		}
		c = tls.Client(c, o)
	}
	err = within(ctx, c, func() error {
		if err := send(c, w.hello(p, kind)); err != nil {
			return err
		}
		return receive(c, &answer)
	})
	if err == nil && answer.Error != "" {
		err = fmt.Errorf("replica: %s refused the connection: %s", p.address, answer.Error)
	}
	if err == nil {
		err = w.expected(p, &answer)
	}
	if err == nil {
		err = certified(c, answer.ID)
	}
	if err != nil {
		return nil, answer, errors.Join(err, c.Close())
	}
	return c, answer, nil
}

// hello returns the first message of a connection to a member.
func (w *wire) hello(p peer, kind string) hello {
	n := w.node
	h := hello{Version: wireVersion, Kind: kind, From: n.opts.ID, Address: w.address, Directory: n.directory, To: p.id}
	if n.running.Load() {
		h.Last = n.raft.LastIndex()
	}
	n.mu.RLock()
	h.Cluster = n.cluster
	n.mu.RUnlock()
	if n.running.Load() {
		if n.applied.Load() >= n.store.members.Load() { // otherwise the member may have been removed and added
			h.ToDirectory = n.recorded(p.id).Directory
		}
	}
	return h
}

// expected returns an error if the node that answered is not the one that was called.
func (w *wire) expected(p peer, a *welcome) error {
	n := w.node
	n.mu.RLock()
	cluster := n.cluster
	n.mu.RUnlock()
	switch {
	case p.id == "":
		return nil
	case a.ID != p.id:
		return errOther(p, a.ID)
	case cluster != 0 && a.Cluster != 0 && cluster != a.Cluster:
		return fmt.Errorf("replica: node %q at %s belongs to cluster %016x, and this node to %016x: one of them has the directory of another cluster", a.ID, p.address, a.Cluster, cluster)
	}
	return n.recognize(p.id, a.Directory)
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

// memberConn is a connection for requests, one at a time. The process at its other end keeps its ID
// and its directory.
type memberConn struct {
	net.Conn
	id        raft.ServerID
	directory uint64
}

// ask sends a request and receives its answer.
func (c memberConn) ask(r request, a *answer) error {
	if err := send(c, r); err != nil {
		return err
	}
	return receive(c, a)
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

// MemberTerm implements network.
func (b base) MemberTerm(id raft.ServerID, target raft.ServerAddress, until time.Time) (uint64, error) {
	w := b.wire
	ctx, cancel := context.WithDeadline(w.node.closing, until)
	defer cancel()
	var p [8]byte
	err := w.request(ctx, peer{string(id), w.node.addressOf(string(id), string(target))}, kindTerm, func(c memberConn) error {
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

// is returns an error if the node at the other end of a connection is not a member, or has forgotten
// what it acknowledged. It is called after an answer: an unused connection may be one to an earlier process.
func (w *wire) is(c memberConn, id raft.ServerID, target raft.ServerAddress) error {
	if c.id != id {
		return errOther(peer{string(id), string(target)}, string(c.id))
	}
	return w.node.recognize(string(id), c.directory)
}

// progress asks a member for the index of the last entry that it has stored and applied.
func (w *wire) progress(ctx context.Context, m raft.Server) (index uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	stop := context.AfterFunc(w.node.closing, cancel)
	defer stop()
	var a answer
	err = w.request(ctx, w.node.peerOf(m), kindRequest, func(c memberConn) error {
		if err := c.ask(request{Kind: askApplied}, &a); err != nil {
			return err
		}
		return w.is(c, m.ID, m.Address)
	})
	return a.Index, err
}

// request runs f with a connection to a member that no other request uses, until ctx is done. It runs f
// again with another connection if the member has closed an unused one, for example because it was
// started again.
func (w *wire) request(ctx context.Context, p peer, kind string, f func(memberConn) error) error {
	for {
		c, used, err := w.unused(ctx, idleKey{p, kind})
		if err != nil {
			return err
		}
		if err = within(ctx, c, func() error { return f(c) }); err == nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.idle != nil {
				key := idleKey{p, kind}
				w.idle[key] = append(w.idle[key], c)
			}
			return nil
		}
		w.drop(c.Conn)
		if !used || ctx.Err() != nil {
			return err
		}
	}
}

// within runs f, whose calls of a connection fail when ctx is done.
func within(ctx context.Context, c net.Conn, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	err := f()
	if !stop() { // the connection cannot be used any more
		return errors.Join(err, context.Cause(ctx))
	}
	return err
}

// unused returns a connection that is not in use, and whether it was used before.
func (w *wire) unused(ctx context.Context, key idleKey) (c memberConn, used bool, err error) {
	w.mu.Lock()
	if list := w.idle[key]; len(list) > 0 {
		c, w.idle[key] = list[len(list)-1], list[:len(list)-1]
		w.mu.Unlock()
		return c, true, nil
	}
	w.mu.Unlock()
	raw, answer, err := w.meet(ctx, key.peer, key.kind)
	if err != nil {
		return c, false, err
	}
	if !w.track(raw) {
		return c, false, errors.Join(net.ErrClosed, raw.Close())
	}
	return memberConn{raw, raft.ServerID(answer.ID), answer.Directory}, false, nil
}

// cut closes all connections, and refuses later ones.
func (w *wire) cut() {
	w.mu.Lock()
	conns := w.conns
	w.conns, w.idle = nil, nil
	w.mu.Unlock()
	for c := range conns {
		_ = c.Close()
	}
}

// Close ends all connections.
func (w *wire) Close() error {
	var err error
	w.once.Do(func() {
		err = w.listener.Close()
		if w.transport != nil {
			_ = w.transport.Close()
		}
		w.cut()
		w.over.Wait()
	})
	return err
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
			if err = w.node.verify(w.node.closing); err == nil {
				a.Index = w.node.newest()
			}
		case askApplied:
			// While the files of a snapshot are fetched, raft stores nothing and has not applied it.
			a.Index = min(w.node.applied.Load(), w.node.raft.AppliedIndex())
		case askCheck:
			a.Check, a.Index, err = w.node.checkAll(w.node.closing, r.Database)
		case askSum:
			a = w.node.checks.answer(r.Check, w.node.closing.Done())
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

// askTimeout is how long a request without a deadline may take.
const askTimeout = 10 * time.Second

func (w *wire) ask(ctx context.Context, p peer, r request) (a answer, err error) {
	ctx, cancel := w.bound(ctx, askTimeout)
	defer cancel()
	err = w.request(ctx, p, kindRequest, func(c memberConn) error {
		return c.ask(r, &a)
	})
	if err == nil && a.Error != "" {
		err = fmt.Errorf("replica: %s answered: %s", p.address, a.Error)
	}
	return a, err
}

// bound returns a context that also ends when the node is closed. If ctx has no deadline, it ends
// after a time.
func (w *wire) bound(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	var cancel context.CancelFunc
	if _, ok := ctx.Deadline(); ok {
		ctx, cancel = context.WithCancel(ctx)
	} else {
		ctx, cancel = context.WithTimeout(ctx, most)
	}
	stop := context.AfterFunc(w.node.closing, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// fetchRequest requests a database with at least a number of transactions.
type fetchRequest struct {
	Database uint64 `json:"database"`
	Seq      uint64 `json:"seq"`
}

type fetchAnswer struct {
	Error    string   `json:"error,omitempty"`
	Deleted  bool     `json:"deleted,omitempty"` // the database was deleted, in raft's log
	Position Position `json:"position"`
	PageSize uint32   `json:"pageSize"`
	Pages    uint32   `json:"pages"`
}

func (w *wire) serveFetch(c net.Conn) {
	var r fetchRequest
	if receive(c, &r) != nil {
		return
	}
	ctx, cancel := context.WithTimeout(w.node.closing, 30*time.Second)
	defer cancel()
	f, m, pos, err := w.node.imageOf(ctx, r.Database, r.Seq)
	if err != nil {
		_ = send(c, fetchAnswer{Error: err.Error(), Deleted: w.node.isDeleted(r.Database)})
		return
	}
	defer func() { _ = errors.Join(m.done(), f.close()) }()
	if send(c, fetchAnswer{Position: pos, PageSize: m.pageSize, Pages: m.pages}) != nil {
		return
	}
	out := bufio.NewWriterSize(c, 256<<10)
	p := make([]byte, m.pageSize)
	for pgno := uint32(1); pgno <= m.pages; pgno++ {
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if m.read(pgno, p) != nil {
			return
		}
		if _, err := out.Write(p); err != nil {
			return
		}
	}
	_ = out.Flush()
}

// imageOf opens an image of a database with at least seq transactions, and returns its
// position.
func (n *Node) imageOf(ctx context.Context, id, seq uint64) (*pageFile, *image, Position, error) {
	db := n.byID(id)
	for ; ; db = n.byID(id) {
		if n.isDeleted(id) {
			return nil, nil, Position{}, errDeleted
		}
		if db != nil {
			db.mu.Lock()
			at, err := db.filePosition(seq)
			db.mu.Unlock()
			if err != nil {
				return nil, nil, Position{}, err
			}
			if at.Seq >= seq {
				break
			}
		}
		select {
		case <-ctx.Done():
			return nil, nil, Position{}, fmt.Errorf("replica: this node has not yet applied the creation of database %d: %w", id, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
	f, err := openPages(db.keeperURI(), db.path, &n.opts.disk)
	if err != nil {
		return nil, nil, Position{}, err
	}
	for {
		if _, _, err := f.header(); err != nil {
			return nil, nil, Position{}, errors.Join(err, f.close())
		}
		var locked bool
		db.mu.Lock()
		err := db.flush()
		if err == nil {
			locked, err = tryLock(f.shm, lockWrite)
		}
		// While the writer's lock is held, no transaction is in raft's log but not in the file. A writer
		// that waits for a majority may wait for the member that fetches the file.
		if err == nil && (locked || db.proposed) {
			var m *image
			var pos Position
			if pos, err = db.filePosition(seq); err == nil {
				m, err = f.image()
			}
			db.mu.Unlock()
			if locked {
				err = errors.Join(err, unlock(f.shm, lockWrite))
			}
			if err == nil {
				return f, m, pos, nil
			}
			return nil, nil, pos, errors.Join(err, f.close())
		}
		db.mu.Unlock()
		if err == nil {
			select {
			case <-ctx.Done():
				err = ctx.Err()
			case <-time.After(200 * time.Microsecond):
			}
		}
		if err != nil {
			return nil, nil, Position{}, errors.Join(err, f.close())
		}
	}
}

// differs has a database repaired whose pages, read from its files, have another checksum than its position.
// Another program has changed a file, or the disk has.
func (n *Node) differs(id, sum uint64, pos Position) {
	if db := n.byID(id); db != nil {
		db.mu.Lock()
		defer db.mu.Unlock()
		db.fail(fmt.Errorf("the pages of %s differ: their checksum is %016x instead of %016x", db.path, sum, pos.Sum))
	}
}

// repair has a database repaired. It may be called with db.mu locked.
func (n *Node) repair(db *database) { n.repairSoon(repairJob{db, 20 * time.Millisecond}) }

// repairJob is a database to be repaired, and when to try again if that fails.
type repairJob struct {
	db   *database
	wait time.Duration
}

func (n *Node) repairSoon(j repairJob) {
	select {
	case n.repair_ <- j:
	default:
		n.repairLater(j, time.Second)
	}
}

func (n *Node) repairLater(j repairJob, after time.Duration) {
	time.AfterFunc(after, func() {
		if n.closing.Err() == nil {
			n.repairSoon(j)
		}
	})
}

// repairer repairs databases. One that cannot be repaired yet does not delay others.
func (n *Node) repairer() {
	for {
		select {
		case <-n.closing.Done():
			return
		case j := <-n.repair_:
			err := n.fetch(j.db)
			if err == nil || n.closing.Err() != nil {
				continue
			}
			n.log.Warn("replica: a database cannot be fetched yet", "database", j.db.name, "error", err)
			n.repairLater(repairJob{j.db, min(2*j.wait, 2*time.Second)}, j.wait)
		}
	}
}

// sources returns the members from which a database may be fetched, the leader first.
func (n *Node) sources() []peer {
	leader, id := n.raft.LeaderWithID()
	var all []peer
	if leader != "" && string(leader) != n.Address() {
		all = append(all, peer{string(id), string(leader)})
	}
	if f := n.raft.GetConfiguration(); f.Error() == nil {
		for _, m := range f.Configuration().Servers {
			if m.Address != leader && string(m.ID) != n.opts.ID {
				all = append(all, n.peerOf(m))
			}
		}
	}
	return all
}

// fetch repairs a database from raft's log if that suffices. Otherwise it replaces the file by
// that of another node.
func (n *Node) fetch(db *database) error {
	db.mu.Lock()
	if db.broken == nil || db.gone {
		db.mu.Unlock()
		return nil
	}
	if err := db.redo(); err == nil {
		db.mu.Unlock()
		return nil
	}
	db.fetching, db.spilled, db.backlog, db.backBytes = true, false, nil, 0
	seq := db.pos.Seq
	db.mu.Unlock()
	err := errors.New("the cluster has no other node")
	for _, source := range n.sources() {
		if err = n.fetchFrom(db, source, seq); err == nil {
			return nil
		}
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	db.fetching, db.backlog, db.backBytes = false, nil, 0
	return err
}

func (n *Node) fetchFrom(db *database, source peer, seq uint64) error {
	ctx, cancel := context.WithTimeout(n.closing, 10*time.Second)
	defer cancel()
	c, err := n.wire.dial(ctx, source, kindFetch)
	if err != nil {
		return err
	}
	defer c.Close()
	stop := context.AfterFunc(n.closing, func() { _ = c.Close() })
	defer stop()
	if err := send(c, fetchRequest{db.id, seq}); err != nil {
		return err
	}
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	in := bufio.NewReaderSize(c, 256<<10)
	var a fetchAnswer
	if err := receive(in, &a); err != nil {
		return err
	}
	if a.Deleted {
		db.mu.Lock()
		db.obsolete = true
		db.mu.Unlock()
	}
	if a.Error != "" {
		return fmt.Errorf("%s answered: %s", source.address, a.Error)
	}
	if a.PageSize != db.pageSize {
		return fmt.Errorf("%s has pages of %d bytes, and this node of %d", source.address, a.PageSize, db.pageSize)
	}
	if err := db.makeRoom(); err != nil {
		return err
	}
	tmp := db.path + ".new"
	f, err := os.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(tmp)
	var sum uint64
	out := bufio.NewWriterSize(f, 256<<10)
	p := make([]byte, a.PageSize)
	for pgno := uint32(1); pgno <= a.Pages && err == nil; pgno++ {
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err = io.ReadFull(in, p); err == nil {
			sum ^= pageSum(pgno, p)
			_, err = out.Write(p)
		}
	}
	if err == nil {
		err = out.Flush()
	}
	if err == nil {
		err = n.opts.disk.sync(tmp, f.Sync)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if sum != a.Position.Sum {
		return fmt.Errorf("%s sent pages with the checksum %016x instead of %016x", source.address, sum, a.Position.Sum)
	}
	return db.install(tmp, a.Position)
}

// makeRoom prepares the directory for the file, unless the database was deleted: another one may have a part
// of its path since.
func (db *database) makeRoom() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.gone {
		return errDeleted
	}
	if err := db.node.clearWay(db); err != nil {
		return err
	}
	return db.node.mkdirAll(filepath.Dir(db.path))
}

// install replaces the file of a database by a fetched one.
func (db *database) install(tmp string, pos Position) error {
	n := db.node
	n.closed(db)
	db.epoch.Add(1)
	n.evict(db)
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.gone {
		return errDeleted
	}
	if writers := db.writers.Load(); writers > 0 {
		return fmt.Errorf("%d transactions of this node are being committed: the fetch begins again", writers)
	}
	if pos.Seq < db.pos.Seq && !db.spilled && (len(db.backlog) == 0 || db.backlog[0].seq > pos.Seq) {
		return fmt.Errorf("the other node is at transaction %d, and this node at %d", pos.Seq, db.pos.Seq)
	}
	if err := db.close(); err != nil {
		return err
	}
	if err := removeBeside(db.path); err != nil {
		return err
	}
	// After a power cut the new file must not have the WAL of the old one.
	if err := n.syncFile(filepath.Dir(db.path)); err != nil {
		return err
	}
	if err := n.rename(tmp, db.path); err != nil {
		return err
	}
	if db.spilled && pos.Seq < db.pos.Seq {
		// Raft's log has what was committed meanwhile: it is not cut while a database is not whole.
		db.fetching, db.spilled = false, false
		db.epoch.Add(1)
		return db.redo()
	}
	backlog := db.backlog
	db.fetching, db.spilled, db.backlog, db.backBytes = false, false, nil, 0
	total, err := db.scan()
	if err != nil {
		return err
	}
	db.loaded, db.broken, db.ahead, db.due = true, nil, false, 0
	db.lacks.Store(false)
	now := db.pos
	if total != pos.Sum {
		db.broken = &BrokenError{db.name, fmt.Errorf("the fetched file has the checksum %016x instead of %016x", total, pos.Sum)}
		return db.broken
	}
	db.epoch.Add(1)
	switch {
	case pos.Seq > now.Seq: // raft's log will replay transactions that the file already has
		db.ahead, db.target, db.due = true, pos.Sum, pos.Seq
	default:
		db.pos.Seq, db.pos.Sum = pos.Seq, pos.Sum
		for _, t := range backlog {
			if t.seq >= pos.Seq && t.before == db.pos.Sum && db.broken == nil {
				db.receive(t)
				db.pos.Seq, db.pos.Sum = t.seq+1, t.after
			}
		}
		at := db.pos
		wrong := at.Seq != now.Seq || at.Sum != now.Sum
		db.pos = now
		if wrong && db.broken == nil {
			db.broken = &BrokenError{db.name, fmt.Errorf("the fetched file and the %d transactions after it end at transaction %d with the checksum %016x, and raft's log at %d with %016x", len(backlog), at.Seq, at.Sum, now.Seq, now.Sum)}
		}
		if db.broken != nil {
			return db.broken
		}
	}
	db.dirty.Store(true)
	n.metrics.Fetched.Add(1)
	n.log.Info("replica: a database was fetched", "database", db.name, "transactions", pos.Seq)
	return nil
}

// fetchAll fetches the databases that this node does not have in the state of a snapshot. It
// returns when it has all of them: raft then assumes that this node has the snapshot.
//
// Without a leader it returns earlier, and the fetches go on. Raft casts no vote before fetchAll
// returns, and the other members may need this vote to commit what the snapshot has. No commit
// can be lost by that: a majority without this node has the data.
func (n *Node) fetchAll(dbs map[string]*database) error {
	var wg sync.WaitGroup
	slots := make(chan struct{}, 4)
	begin := time.Now()
	alone := func() bool {
		return time.Since(begin) > 4*n.opts.Election && time.Since(n.raft.LastContact()) > 4*n.opts.Election
	}
	for _, db := range dbs {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			n.ensure(db, alone)
		})
	}
	wg.Wait()
	return n.closing.Err()
}

// ensure waits until a database is complete on this node, or alone returns true. It does not wait for one
// that was deleted after the snapshot: raft brings the deletion when it has the snapshot.
func (n *Node) ensure(db *database, alone func() bool) {
	db.mu.Lock()
	_ = db.load() // a file with another state is fetched
	db.mu.Unlock()
	for wait := time.Millisecond; n.closing.Err() == nil; wait = min(2*wait, 50*time.Millisecond) {
		db.mu.Lock()
		done := db.broken == nil || db.gone || db.obsolete
		db.mu.Unlock()
		if done || alone() {
			return
		}
		select {
		case <-time.After(wait):
		case <-n.closing.Done():
		}
	}
}

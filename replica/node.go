// SPDX-License-Identifier: MIT

package replica

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/ringside-io/ringside/appendlog"
	"github.com/ringside-io/ringside/replica/internal/raftlog"
)

// Node is a member of a cluster. Its methods may be called concurrently.
type Node struct {
	opts    Options
	log     *slog.Logger
	raft    *raft.Raft
	store   *notedLog
	wire    *wire
	metrics metrics
	life    life

	membership membership
	progress   progress
	changes    changes
	proposer   proposer
	role       role
	fitness    fitness
	openFiles  openFiles
	catalog    catalog
	repairs    repairer
	sessions   sessions
	reads      reads
	checks     checks
}

// life is the time for which a node is open.
type life struct {
	closing context.Context // ends when Close begins
	stop    context.CancelFunc
	over    sync.WaitGroup // the node's goroutines, for which Close waits
}

// Open starts a node. It returns when the node takes part in the cluster, which may have no
// leader yet: WaitLeader waits for one.
func Open(o Options) (*Node, error) { return openNode(o) }

func openNode(o Options) (n *Node, err error) {
	if !o.Trace {
		return startNode(o)
	}
	opened := make(chan struct{})
	go func() { // the goroutines that it starts inherit its labels
		defer close(opened)
		pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("ringside", "replica", "node", o.ID)))
		n, err = startNode(o)
	}()
	<-opened
	return n, err
}

func startNode(o Options) (_ *Node, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	n, err := newNode(o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	if n.membership.moving {
		return nil, fmt.Errorf("replica: the recovery of %s was interrupted: repeat it, by Recover or ringside-replica recover", n.opts.Dir)
	}
	if err := n.openLog(); err != nil {
		return nil, err
	}
	if n.wire, err = listen(n); err != nil {
		return nil, err
	}
	if err := n.start(); err != nil {
		return nil, err
	}
	n.role.running.Store(true)
	n.life.over.Go(n.lead)
	n.life.over.Go(n.proposer.loop)
	n.life.over.Go(n.wire.recordMembers)
	n.life.over.Go(n.reads.catchUp)
	n.life.over.Go(n.watchLog)
	n.life.over.Go(n.fitness.watch)
	for range 4 {
		n.life.over.Go(n.repairs.loop)
	}
	return n, nil
}

// newNode makes the directories of a node and reads its identity.
func newNode(o Options) (_ *Node, err error) {
	n := &Node{opts: o, log: o.Logger.With("node", o.ID)}
	n.life.closing, n.life.stop = context.WithCancel(context.Background())
	disk := &n.opts.disk
	n.fitness.n, disk.fitness = n, &n.fitness
	data := filepath.Join(o.Dir, "data")
	for _, dir := range []string{data, filepath.Join(o.Dir, "raft")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	if data, err = filepath.EvalSymlinks(data); err != nil { // SQLite names files without symbolic links
		return nil, err
	}
	if len(data) > maxData {
		return nil, fmt.Errorf("replica: Options.Dir: the path of its databases, %s, has %d bytes, and SQLite allows %d with the longest name of a database", data, len(data), maxData)
	}
	n.membership.open(n, data)
	n.proposer.open(n)
	n.proposer.outcome = n.role.outcome
	n.proposer.settled = func(id uint64, p proposalID) {
		if db := n.catalog.byID(id); db != nil {
			db.known(p)
		}
	}
	n.catalog.open(n, data)
	n.openFiles.most, n.openFiles.closing, n.openFiles.log = o.OpenDatabases, n.life.closing, n.log
	n.sessions.closing, n.sessions.conns = n.life.closing, make(map[*conn]struct{})
	n.sessions.forwardIdle.Store(int64(defaultForwardIdle))
	n.role.node, n.reads.node, n.checks.node, n.repairs.node = n, n, n, n
	n.repairs.queue = make(chan repairJob, 1<<12)
	if err := n.membership.load(); err != nil {
		return nil, err
	}
	vfs.Register(n.catalog.vfsName, &nodeVFS{vfs.Find("os"), n})
	return n, nil
}

// openLog opens raft's log, which locks the directory.
func (n *Node) openLog() error {
	store, err := raftlog.Open(filepath.Join(n.opts.Dir, "raft"), raftlog.Options{Stop: n.life.closing.Done(), Written: n.opts.disk.written, Trace: n.opts.Trace})
	if e, ok := errors.AsType[*appendlog.CorruptError](err); ok {
		return fmt.Errorf("replica: raft's log has lost entries that this node has acknowledged: %w: %s", e, rejoin)
	}
	if err != nil {
		return err
	}
	n.store = &notedLog{Store: store}
	n.membership.store = n.store
	// No other process uses the directory.
	if err := n.membership.seal(store); err != nil {
		return err
	}
	n.store.mark, n.store.fitness = n.membership.mark, &n.fitness
	last, err := store.LastIndex()
	if err != nil {
		return err
	}
	n.store.members.Store(last)
	return os.RemoveAll(filepath.Join(n.opts.Dir, "staging"))
}

func (n *Node) start() error {
	dir := filepath.Join(n.opts.Dir, "raft")
	logger := hclog.New(&hclog.LoggerOptions{Name: "raft", Output: logWriter{n}, Level: hclog.Warn, DisableTime: true})
	files, err := raft.NewFileSnapshotStoreWithLogger(dir, 2, logger)
	if err != nil {
		return err
	}
	snapshots := snapshotStore{files, n}
	c := n.opts.raftConfig()
	c.Logger = logger
	if len(n.opts.Addresses) > 0 {
		l, err := n.loss(files)
		if err != nil {
			return fmt.Errorf("replica: Options.Addresses: %w", err)
		}
		n.wire.before = make(map[string]string)
		for _, m := range l.Members {
			n.wire.before[m.ID] = m.Address
		}
	}
	// raft dials addresses. The name of the member goes before each, so that the wire knows whom it calls.
	n.wire.transport = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: layer{n.wire}, MaxPool: 4, Timeout: n.opts.requestTimeout(), Logger: logger,
	})
	// InstallSnapshot fetches the files, which takes any time, see transport.giveUpOn: 10 s for each byte.
	n.wire.transport.TimeoutScale = 1
	n.store.holds.room = func() bool {
		free, total, err := space(n.opts.Dir)
		most := 8 * n.opts.LogBytes
		return err == nil && free > min(total/10, 2*uint64(most)) && n.store.Bytes() < most
	}
	n.reads.members = base{n.wire.transport, n.wire}
	if n.opts.around != nil {
		n.reads.members = n.opts.around(n.reads.members)
	}
	through := transport{
		network: n.reads.members, patience: max(2*n.opts.Election, time.Second), failures: &n.wire.failures, log: n.store, mayVote: n.wire.mayVote, mayLead: n.fitness.mayLead, cut: n.wire.cutPeer,
		beats:       beats{time.Now(), min(n.opts.Election/6, time.Second/6), n.life.closing.Done()},
		newSnapshot: func() { n.life.over.Go(func() { _ = n.raft.Snapshot().Error() }) }, // the next failure tries again
	}
	has := false
	if len(n.opts.Peers) > 0 {
		fresh := firstTerm{n.store}
		if has, err = raft.HasExistingState(n.store, fresh, snapshots); err != nil {
			return err
		}
		if !has {
			var members raft.Configuration
			for id, address := range n.opts.Peers {
				members.Servers = append(members.Servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(address)})
			}
			slices.SortFunc(members.Servers, func(a, b raft.Server) int { return strings.Compare(string(a.ID), string(b.ID)) })
			if err := raft.BootstrapCluster(c, n.store, fresh, snapshots, through, members); err != nil {
				return err
			}
		}
	}
	n.raft, err = raft.NewRaft(c, fsm{n}, raftLog{n.store}, n.store, snapshots, through)
	if err == nil && has {
		n.comparePeers()
	}
	return err
}

// logWriter passes raft's log lines to slog.
type logWriter struct{ n *Node }

// Write leaves out the errors of requests that Close interrupts.
func (w logWriter) Write(p []byte) (int, error) {
	if w.n.life.closing.Err() == nil {
		_, line, _ := strings.Cut(string(p), "raft: ")
		w.n.log.Warn("raft: " + strings.TrimSpace(line))
	}
	return len(p), nil
}

// Close stops the node. A leader transfers the leadership first, for at most Options.Election or one second. Databases that Node.Open returned must not be used after it.
// Acknowledged transactions are kept. The files are ordinary SQLite databases.
func (n *Node) Close() error {
	if n.role.retiring.Swap(true) {
		return nil
	}
	n.role.handOver()
	n.life.stop()
	if n.wire != nil {
		n.wire.cut() // raft waits for its requests
	}
	var errs []error
	if n.raft != nil {
		errs = append(errs, n.raft.Shutdown().Error())
	}
	n.role.set(nil)
	n.sessions.evict(nil)
	if n.wire != nil {
		errs = append(errs, n.wire.Close())
	}
	n.life.over.Wait()
	n.fitness.close()
	n.proposer.abandon(raft.ErrRaftShutdown)
	for _, db := range n.catalog.all() {
		db.mu.Lock()
		errs = append(errs, db.close())
		db.mu.Unlock()
	}
	if n.store != nil {
		errs = append(errs, n.store.Close(), n.membership.mark.Close())
	}
	vfs.Register(n.catalog.vfsName, closedVFS{vfs.Find("os")})
	return errors.Join(errs...)
}

// lead makes the node ready when it has become the leader.
func (n *Node) lead() {
	for {
		select {
		case <-n.life.closing.Done():
			return
		case leads := <-n.raft.LeaderCh():
			n.role.set(nil)
			n.role.prompt.Store(false)
			if !leads {
				n.sessions.evict(nil)
				continue
			}
			n.sessions.evict(nil) // connections left from an earlier term
			n.sessions.awaitWriters()
			term := n.raft.CurrentTerm()
			if !n.role.catchUpWith(term) {
				continue
			}
			n.role.prompt.Store(true)
			n.catalog.flush()
			n.role.set(&leadership{term})
			n.catalog.settle()
			n.membership.mu.RLock()
			cluster := n.membership.cluster
			n.membership.mu.RUnlock()
			if cluster == 0 {
				n.life.over.Go(func() {
					id := binary.LittleEndian.AppendUint64(nil, rand.Uint64()|1)
					_ = n.proposer.commit(n.life.closing, opCluster, id) // the next leader tries again
				})
			}
			n.membership.look()
			n.life.over.Go(n.dropParts)
			if len(n.opts.Addresses) > 0 {
				n.life.over.Go(n.readdress)
			}
			n.log.Info("replica: this node is the leader", "term", term)
		}
	}
}

// The list of databases.

// watchLog takes a snapshot when the log is large, so that raft cuts it.
func (n *Node) watchLog() {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-n.life.closing.Done():
			return
		case <-tick.C:
			n.cutLog()
		}
	}
}

// cutLog takes a snapshot if the log is large and has more than the SnapshotEntries newest entries,
// which raft keeps.
func (n *Node) cutLog() {
	if n.store.Bytes() <= n.opts.LogBytes {
		return
	}
	first, err := n.store.FirstIndex()
	if err == nil && n.raft.LastIndex() < first+uint64(n.opts.SnapshotEntries) {
		return
	}
	if err == nil {
		err = n.raft.Snapshot().Error()
	}
	if err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
		n.log.Warn("replica: the log cannot be truncated", "error", err)
	}
}

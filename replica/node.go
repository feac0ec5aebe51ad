// SPDX-License-Identifier: MIT

package replica

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/ringside-io/ringside/appendlog"
	"github.com/ringside-io/ringside/replica/internal/raftlog"
)

// Options configure a node.
type Options struct {
	// ID names the node within the cluster. The ID of a directory cannot be changed.
	ID string
	// Dir is the node's directory: data/ has the databases, raft/ the log and snapshots.
	Dir string
	// Listen is the address on which the node listens for other nodes. Advertise is the
	// address by which they reach it; "" means the address of the listener.
	Listen, Advertise string
	// Peers has the addresses of all members of a new cluster by their IDs, including this
	// node's. It is used once, when the directory is empty, and must be the same on all members.
	// It is empty for a node that joins an existing cluster, whose leader calls AddMember.
	Peers map[string]string
	// Addresses has the addresses of members, by their IDs, that have changed while no majority could record that,
	// for example those of all members. The nodes use them instead of the recorded ones, and the
	// leader records them. It is the same on all members, and can be left out when Node.Status has them. The
	// address of a member that alone has moved is changed by AddMember.
	Addresses map[string]string

	// TLS encrypts the connections between nodes; it must request and verify the
	// certificates of both sides. Without it the nodes must be on loopback addresses,
	// unless PlainText allows others.
	TLS       *tls.Config
	PlainText bool

	// Forward makes connections of Open run their statements on the leader when this node
	// does not lead; connections with Stale do not. A transaction holds the database's
	// write lock on the leader while it is open; one that sends no statement for 10 seconds
	// is rolled back. Arguments have the types of database/sql. A statement with its
	// arguments has at most 10 MiB, a row of a result too, and a result at most 64 MiB.
	// Each connection of the pool is a connection to the leader.
	Forward bool

	// Election determines how soon the loss of a leader is noticed. A follower that gets no
	// heartbeat for 0.5 to 1.5 times this duration becomes a candidate. A leader that gets no
	// answer from a majority for half of it steps down. 0 means one second.
	Election time.Duration
	// MaxTransaction is the largest size of the changed pages of one transaction, in
	// bytes. It must be the same on all nodes. 0 means 64 MiB. The maximum is 100 MiB.
	MaxTransaction int
	// SnapshotEntries is the number of raft entries, and LogBytes the size of the log in bytes,
	// at which a snapshot is taken and the log is cut. The newest SnapshotEntries entries stay
	// in the log, so it exceeds LogBytes if they do. 0 means 8192 entries, and 512 MiB.
	SnapshotEntries int
	LogBytes        int64
	// OpenDatabases is the number of databases whose files a follower keeps open for
	// writing. 0 means 256.
	OpenDatabases int

	// Logger receives elections, repairs and failures. nil means slog.Default().
	Logger *slog.Logger
	// Trace adds regions of package runtime/trace: "replica.commit" while a transaction waits
	// for its commit, "replica.sync" for each durable write of raft's log, "replica.apply"
	// while entries of the log are applied, and "replica.snapshot" for a snapshot. It gives the
	// goroutines of the node the labels ringside=replica and node=ID of package runtime/pprof.
	Trace bool

	disk          disk                  // for tests
	around        func(network) network // for tests
	snapshotEvery time.Duration         // for tests; 0 is 20 seconds
	stall         time.Duration         // for tests; 0 is three times requestTimeout
	flight        int64                 // for tests; 0 is 64 MiB
	flushAfter    time.Duration         // for tests; 0 is 50 ms, see database.receive
}

func (o *Options) check() error {
	switch {
	case !supported:
		return fmt.Errorf("replica: %w: the module needs Linux, for locks of open files", errors.ErrUnsupported)
	case o.ID == "":
		return errors.New("replica: Options.ID is empty: each node needs a name")
	case o.Dir == "":
		return errors.New("replica: Options.Dir is empty: each node needs a directory")
	case o.Listen == "":
		return errors.New("replica: Options.Listen is empty: use host:port, port 0 for any")
	case o.MaxTransaction < 0 || o.MaxTransaction > 100<<20:
		return fmt.Errorf("replica: Options.MaxTransaction: %d is not between 0 and %d", o.MaxTransaction, 100<<20)
	case len(o.Peers) > 0 && o.Peers[o.ID] == "":
		return fmt.Errorf("replica: Options.Peers does not have this node, %q", o.ID)
	}
	if o.Election == 0 {
		o.Election = time.Second
	}
	if o.Election < 50*time.Millisecond {
		return fmt.Errorf("replica: Options.Election: %v is less than 50 ms", o.Election)
	}
	set := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	set(&o.MaxTransaction, 64<<20)
	set(&o.SnapshotEntries, 8192)
	set(&o.OpenDatabases, 256)
	o.flushAfter = cmp.Or(o.flushAfter, 50*time.Millisecond)
	if o.LogBytes == 0 {
		o.LogBytes = 512 << 20
	}
	if o.flight == 0 {
		o.flight = 64 << 20
	}
	if o.stall == 0 {
		o.stall = 3 * o.requestTimeout()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	var err error
	o.Dir, err = filepath.Abs(o.Dir)
	return err
}

// requestTimeout is how long a request of raft, also one with entries, may take.
func (o *Options) requestTimeout() time.Duration { return max(10*time.Second, 2*o.Election) }

// Node is a member of a cluster. Its methods may be called concurrently.
type Node struct {
	opts    Options
	log     *slog.Logger
	data    string
	vfsName string
	raft    *raft.Raft
	store   *notedLog
	wire    *wire
	metrics metrics
	bug     seededBug // a seeded bug of a test
	closing context.Context
	fitness fitness

	recovering bool              // for Recover
	before     map[string]string // the members' addresses when the node was opened, see Options.Addresses

	retiring    atomic.Bool  // Close was called
	forwardIdle atomic.Int64 // see defaultForwardIdle

	stop context.CancelFunc
	over sync.WaitGroup

	mu      sync.RWMutex
	dbs     map[uint64]*database
	names   map[string]*database
	folders map[string]int // number of databases in each directory and below it
	cluster uint64
	dirs    directories
	without map[string]uint64 // the last configuration without a member that was added
	adopted uint64            // the configuration of the last snapshot

	fetching bool                // as in identity
	sealed   bool                // as in identity
	moving   bool                // as in identity
	renewed  uint64              // as in identity
	mark     *logMark            // how far raft's log has come
	emptied  map[string]struct{} // directories of databases that were removed

	run     uint64 // random, chosen when the node starts
	next    atomic.Uint64
	queue   chan *proposal
	flying  atomic.Int64  // bytes of this node's entries that raft has not committed or refused
	swept   bool          // sweep was called. For the state machine only
	halted  bool          // an entry could not be read before Close; later ones are not applied. For the state machine only
	began   atomic.Uint64 // index up to which entries are applied or being applied
	pendMu  sync.Mutex
	pending map[proposalID]*proposal
	moved   atomic.Pointer[time.Time] // when entries were last committed; nil if none were

	leading   atomic.Pointer[leadership]
	prompt    atomic.Bool // transactions are written into the files when they are applied; a node that leads has none deferred
	recovered atomic.Bool
	running   atomic.Bool // raft has started
	applied   atomic.Uint64
	waitMu    sync.Mutex
	waiting   chan struct{} // closed when applied grows; nil without a waiting call

	directory uint64        // identifies this node's directory; random, chosen when it was empty
	unknown   chan struct{} // a member may have no entry in dirs
	warned    sync.Map      // directories that were reported

	checks    checks
	verifying sharedCheck
	received  atomic.Uint64 // snapshots of other nodes
	failures  failures
	late      atomic.Pointer[raft.ServerID] // the member that was last asked for its term and did not answer soon
	members   network
	reading   sharedCheck
	lastSync  atomic.Pointer[readSync]

	openMu     sync.Mutex
	open       []*database // with files open, the most recently opened last
	trimming   bool        // trim is called again later
	connMu     sync.Mutex
	conns      map[*conn]struct{}
	connecting sync.Map // *conn by token
	repair_    chan repairJob
}

// leadership is a term in which this node leads and has all entries that were committed before.
type leadership struct{ term uint64 }

// seededBug is a bug that a test builds into a node to show that the checks find it.
type seededBug int

const (
	noBug           seededBug = iota
	bugEarlyAck               // acknowledge a commit before a majority has it
	bugSkipEntry              // a follower skips every seventh entry
	bugApplyTwice             // a follower applies each transaction again after the next
	bugStaleRead              // a read does not ask the majority
	bugApplyRefused           // frames of a refused commit stay in the file
	bugNoSync                 // a snapshot does not sync the database files
)

// NotLeaderError is returned on a node that does not lead, for writes and for reads of
// connections without [Stale].
type NotLeaderError struct {
	// Leader is the leader's ID, and Address is its address. Both are empty if the node knows
	// no leader, for example during an election.
	Leader, Address string
}

// Error names the leader, if there is one.
func (e *NotLeaderError) Error() string {
	if e.Leader == "" {
		return "replica: this node is not the leader, and there is none at the moment"
	}
	return fmt.Sprintf("replica: this node is not the leader: that is %s at %s", e.Leader, e.Address)
}

var vfsNumber atomic.Uint64

// Open starts a node. It returns when the node takes part in the cluster, which may have no
// leader yet: WaitLeader waits for one.
func Open(o Options) (*Node, error) { return openNode(o, noBug) }

func openNode(o Options, bug seededBug) (n *Node, err error) {
	if !o.Trace {
		return startNode(o, bug)
	}
	opened := make(chan struct{})
	go func() { // the goroutines that it starts inherit its labels
		defer close(opened)
		pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("ringside", "replica", "node", o.ID)))
		n, err = startNode(o, bug)
	}()
	<-opened
	return n, err
}

func startNode(o Options, bug seededBug) (_ *Node, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	n, err := newNode(o, bug)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	if n.moving {
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
	n.running.Store(true)
	n.over.Go(n.lead)
	n.over.Go(n.proposer)
	n.over.Go(n.recordMembers)
	n.over.Go(n.catchUp)
	n.over.Go(n.watchLog)
	n.over.Go(n.fitness.watch)
	for range 4 {
		n.over.Go(n.repairer)
	}
	return n, nil
}

// newNode makes the directories of a node and reads its identity.
func newNode(o Options, bug seededBug) (_ *Node, err error) {
	n := &Node{
		opts: o, log: o.Logger.With("node", o.ID), data: filepath.Join(o.Dir, "data"), bug: bug,
		vfsName: fmt.Sprintf("ringside-replica-%d", vfsNumber.Add(1)),
		dbs:     make(map[uint64]*database), names: make(map[string]*database), folders: make(map[string]int), run: rand.Uint64(),
		queue: make(chan *proposal, 1024), pending: make(map[proposalID]*proposal),
		conns: make(map[*conn]struct{}), repair_: make(chan repairJob, 1<<12),
		unknown: make(chan struct{}, 1),
	}
	n.fitness.n, n.opts.disk.fitness = n, &n.fitness
	n.forwardIdle.Store(int64(defaultForwardIdle))
	n.closing, n.stop = context.WithCancel(context.Background())
	for _, dir := range []string{n.data, filepath.Join(o.Dir, "raft")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	if n.data, err = filepath.EvalSymlinks(n.data); err != nil { // SQLite names files without symbolic links
		return nil, err
	}
	if len(n.data) > maxData {
		return nil, fmt.Errorf("replica: Options.Dir: the path of its databases, %s, has %d bytes, and SQLite allows %d with the longest name of a database", n.data, len(n.data), maxData)
	}
	if err := n.identify(); err != nil {
		return nil, err
	}
	vfs.Register(n.vfsName, &nodeVFS{vfs.Find("os"), n})
	return n, nil
}

// openLog opens raft's log, which locks the directory.
func (n *Node) openLog() error {
	store, err := raftlog.Open(filepath.Join(n.opts.Dir, "raft"), raftlog.Options{Stop: n.closing.Done(), Written: n.opts.disk.written, Trace: n.opts.Trace})
	if e, ok := errors.AsType[*appendlog.CorruptError](err); ok {
		return fmt.Errorf("replica: raft's log has lost entries that this node has acknowledged: %w: %s", e, rejoin)
	}
	if err != nil {
		return err
	}
	n.store = &notedLog{Store: store}
	// No other process uses the directory.
	if err := n.seal(store); err != nil {
		return err
	}
	n.store.mark, n.store.fitness = n.mark, &n.fitness
	last, err := store.LastIndex()
	if err != nil {
		return err
	}
	n.store.members.Store(last)
	return os.RemoveAll(filepath.Join(n.opts.Dir, "staging"))
}

// directories has the directory of each member, as raft's log has recorded it. A member that
// was opened with another directory has forgotten what it acknowledged and for which candidate
// it voted. Elections without it could lose commits, so candidates do not count its vote, and it
// does not count votes for itself, until it was removed and added.
//
// The file node.json has them too: after a restart a node votes before it knows what is
// committed.
type directories struct {
	Place   uint64                     `json:"place"`  // of the last change in raft's log: index<<12 and operation
	Config  uint64                     `json:"config"` // index of the last change of the members
	Members map[string]memberDirectory `json:"members,omitempty"`
}

type memberDirectory struct {
	Directory uint64 `json:"directory"`
	Place     uint64 `json:"place"`
}

// setFetching records whether the files of a snapshot are being fetched. If the process ends
// meanwhile, the files may be old when it starts again, and that is no damage.
func (n *Node) setFetching(on bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fetching == on {
		return nil
	}
	n.fetching = on
	return n.saveIdentity()
}

// writeFile replaces a file durably.
func (n *Node) writeFile(name string, p []byte) error {
	tmp := name + ".new"
	f, err := os.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(p)
	if err == nil {
		err = n.opts.disk.sync(tmp, f.Sync)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = n.rename(tmp, name)
	}
	return err
}

// rename gives a synced file its name, durably.
func (n *Node) rename(old, name string) error {
	err := os.Rename(old, name)
	if err == nil {
		err = n.syncFile(filepath.Dir(name))
	}
	if err != nil {
		return err
	}
	return n.opts.disk.sync(name, func() error { return nil })
}

// join records the identity of the cluster. The first one in raft's log counts.
func (n *Node) join(cluster uint64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cluster != 0 {
		return nil
	}
	n.cluster = cluster
	return n.saveIdentity()
}

// recordMember records the directory of a member, if there was no change of the members since
// the leader saw it.
func (n *Node) recordMember(place, config, directory uint64, id string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := &n.dirs
	if _, ok := d.Members[id]; ok || place <= d.Place || config < d.Config {
		return nil
	}
	members := map[string]memberDirectory{id: {directory, place}}
	maps.Copy(members, d.Members)
	d.Place, d.Members = place, members
	return n.saveIdentity()
}

// configured forgets the directories of members that were removed.
func (n *Node) configured(index uint64, c raft.Configuration) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := &n.dirs
	if index<<12 <= d.Place {
		return nil
	}
	members, without := make(map[string]memberDirectory), make(map[string]uint64)
	for _, m := range c.Servers {
		if known, ok := d.Members[string(m.ID)]; ok {
			members[string(m.ID)] = known
		}
		config, ok := n.without[string(m.ID)]
		if !ok {
			config = d.Config
		}
		without[string(m.ID)] = config
	}
	n.without = without
	*d = directories{index << 12, index, members}
	n.lookAtMembers()
	return n.saveIdentity()
}

// adopt takes over the directories of a snapshot, unless this node has newer ones.
func (n *Node) adopt(d directories) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if d.Place <= n.dirs.Place {
		return nil
	}
	n.dirs, n.adopted = d, d.Config
	return n.saveIdentity()
}

// recordMembers proposes to record the directories of members that this node has met while it
// leads.
func (n *Node) recordMembers() {
	for {
		select {
		case <-n.closing.Done():
			return
		case <-n.unknown:
		}
		n.mu.RLock()
		config := n.dirs.Config
		n.mu.RUnlock()
		f := n.raft.GetConfiguration()
		if n.leader() == nil || f.Error() != nil {
			continue
		}
		for _, m := range f.Configuration().Servers {
			directory := n.directory
			if string(m.ID) != n.opts.ID {
				v, ok := n.wire.met.Load(n.peerOf(m).address)
				if !ok {
					continue
				}
				met := v.(meeting)
				n.mu.RLock()
				least := max(n.without[string(m.ID)], n.adopted)
				n.mu.RUnlock()
				if met.config < least {
					// A member that was removed and added may have a new directory since it was met.
					ctx, cancel := context.WithTimeout(n.closing, n.opts.Election)
					c, err := n.wire.dial(ctx, n.peerOf(m), kindTerm)
					cancel()
					if err != nil {
						continue // raft connects to it later
					}
					_ = c.Close()
					v, _ = n.wire.met.Load(n.peerOf(m).address)
					met = v.(meeting)
				}
				if met.ID != string(m.ID) || met.config < least {
					continue
				}
				directory = met.Directory
			}
			n.mu.RLock()
			known, ok := n.dirs.Members[string(m.ID)]
			n.mu.RUnlock()
			switch {
			case ok && known.Directory != directory:
				_ = n.replaced(string(m.ID), directory)
			case !ok && directory != 0:
				rest := binary.LittleEndian.AppendUint64(nil, config)
				rest = binary.LittleEndian.AppendUint64(rest, directory)
				_ = n.commit(n.closing, opMember, append(rest, m.ID...)) // the next leader tries again
			}
		}
	}
}

// lookAtMembers starts a round of recordMembers.
func (n *Node) lookAtMembers() {
	select {
	case n.unknown <- struct{}{}:
	default:
	}
}

// replaced reports that a member has another directory than the recorded one.
func (n *Node) replaced(id string, directory uint64) error {
	err := fmt.Errorf("replica: member %q was opened with another directory than the one that the cluster has recorded, and has forgotten what it acknowledged: its vote does not count until it is removed and added again", id)
	if _, known := n.warned.LoadOrStore([2]any{id, directory}, true); !known {
		n.log.Error(err.Error())
	}
	return err
}

// mayVote returns an error if the vote of a member does not count for this node.
func (n *Node) mayVote(id, address string) error {
	address = n.addressOf(id, address)
	v, ok := n.wire.met.Load(address)
	if !ok {
		return nil
	}
	met := v.(meeting)
	if met.ID != id {
		return errOther(peer{id, address}, met.ID)
	}
	if err := n.recognize(id, met.Directory); err != nil {
		return err
	}
	n.mu.RLock()
	own := n.dirs.Members[n.opts.ID]
	outdated := n.dirs.Place > met.Known.Place && own.Directory != met.Known.Directory
	n.mu.RUnlock()
	// A node whose log has come further may have been removed and added, and must be able to lead.
	if met.Known.Directory != 0 && met.Known.Directory != n.directory && !outdated && !n.cameFurther(met.Known.Place>>12) {
		return n.replaced(n.opts.ID, n.directory)
	}
	return nil
}

// recorded returns the directory of a member that raft's log has recorded, the zero value without one.
func (n *Node) recorded(id string) memberDirectory {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.dirs.Members[id]
}

// recognize returns an error if a member has another directory than the recorded one, and was not
// removed since: it has forgotten what it acknowledged and for whom it voted.
func (n *Node) recognize(id string, directory uint64) error {
	known := n.recorded(id)
	if known.Directory == 0 || known.Directory == directory || n.removed(id, known.Place>>12) {
		return nil
	}
	return n.replaced(id, directory)
}

// cameFurther reports whether this node has all entries up to an index. It does not know that
// while it starts: n.raft is not set yet when raft asks for the first votes.
func (n *Node) cameFurther(index uint64) bool {
	return n.running.Load() && n.raft.LastIndex() >= index
}

// removed reports whether raft's log has a configuration without a member after an index. This
// node may not know yet that it is committed. It is, if a later configuration has the
// member again; if none has, raft asks the member for no vote.
func (n *Node) removed(id string, after uint64) bool {
	first, err := n.store.FirstIndex()
	if err != nil || first == 0 {
		return false
	}
	last, err := n.store.LastIndex()
	for i := max(first, after+1); err == nil && i <= last; i++ {
		var l raft.Log
		if err = n.store.GetLog(i, &l); err != nil || l.Type != raft.LogConfiguration {
			continue
		}
		members := raft.DecodeConfiguration(l.Data).Servers
		if !slices.ContainsFunc(members, func(m raft.Server) bool { return string(m.ID) == id }) {
			return true
		}
	}
	return false
}

// raftConfig returns raft's configuration.
func (n *Node) raftConfig() *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(n.opts.ID)
	// A follower votes only after it has noticed itself that the leader is gone, which takes
	// one to three times HeartbeatTimeout with raft's random timers.
	c.HeartbeatTimeout, c.ElectionTimeout = n.opts.Election/2, n.opts.Election/2
	c.LeaderLeaseTimeout = n.opts.Election / 2 // reads do not rely on it
	c.CommitTimeout = min(c.CommitTimeout, n.opts.Election/4)
	c.SnapshotThreshold, c.TrailingLogs = uint64(n.opts.SnapshotEntries), uint64(n.opts.SnapshotEntries)
	c.SnapshotInterval = cmp.Or(n.opts.snapshotEvery, 20*time.Second)
	c.ShutdownOnRemove = false // a leader that removed itself can be added again
	c.NoLegacyTelemetry = true
	return c
}

func (n *Node) start() error {
	dir := filepath.Join(n.opts.Dir, "raft")
	logger := hclog.New(&hclog.LoggerOptions{Name: "raft", Output: logWriter{n}, Level: hclog.Warn, DisableTime: true})
	files, err := raft.NewFileSnapshotStoreWithLogger(dir, 2, logger)
	if err != nil {
		return err
	}
	snapshots := snapshotStore{files, n}
	c := n.raftConfig()
	c.Logger = logger
	if len(n.opts.Addresses) > 0 {
		l, err := n.loss(files)
		if err != nil {
			return fmt.Errorf("replica: Options.Addresses: %w", err)
		}
		n.before = make(map[string]string)
		for _, m := range l.Members {
			n.before[m.ID] = m.Address
		}
	}
	// raft dials addresses. The name of the member goes before each, so that the wire knows whom it calls.
	n.wire.transport = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: layer{n.wire}, MaxPool: 4, Timeout: n.opts.requestTimeout(), Logger: logger,
	})
	// InstallSnapshot fetches the files, which takes any time, see transport.giveUpOn: 10 s for each byte.
	n.wire.transport.TimeoutScale = 1
	n.store.holds.room = n.hasRoom
	n.members = base{n.wire.transport, n.wire}
	if n.opts.around != nil {
		n.members = n.opts.around(n.members)
	}
	through := transport{
		network: n.members, patience: max(2*n.opts.Election, time.Second), failures: &n.failures, log: n.store, mayVote: n.mayVote, mayLead: n.fitness.mayLead, cut: n.wire.cutPeer,
		beats:       beats{time.Now(), min(n.opts.Election/6, time.Second/6), n.closing.Done()},
		newSnapshot: func() { n.over.Go(func() { _ = n.raft.Snapshot().Error() }) }, // the next failure tries again
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

// firstTerm is the stable store of a node that may be new. raft.BootstrapCluster sets the first term,
// then adds the members to the log. A node that was killed between the two is still new: candidates
// ask for votes in the second term or a later one. Without members it would never elect a leader.
type firstTerm struct{ raft.StableStore }

// GetUint64 leaves out the first term.
func (s firstTerm) GetUint64(key []byte) (uint64, error) {
	v, err := s.StableStore.GetUint64(key)
	if string(key) == "CurrentTerm" && v == 1 {
		v = 0
	}
	return v, err
}

// snapshotStore keeps a node's snapshots. It refuses one that is older than the newest: raft 1.8
// would go back to it, and panic because the log no longer has the entries between the two. A
// snapshot may arrive late, or from a leader whose own one is older. The leader then takes a new one.
type snapshotStore struct {
	raft.SnapshotStore
	node *Node
}

// olderSnapshot is in the error of a refused snapshot. A leader gets the text only.
const olderSnapshot = "replica: the snapshot is older than the newest one of this node"

// Create is called before a snapshot is taken or received.
func (s snapshotStore) Create(version raft.SnapshotVersion, index, term uint64, members raft.Configuration, membersIndex uint64, t raft.Transport) (raft.SnapshotSink, error) {
	list, err := s.List()
	if err != nil {
		return nil, err
	}
	if len(list) > 0 && index < list[0].Index {
		return nil, fmt.Errorf("%s: it ends at entry %d, not at %d", olderSnapshot, index, list[0].Index)
	}
	sink, err := s.SnapshotStore.Create(version, index, term, members, membersIndex, t)
	if err != nil {
		return nil, err
	}
	return &snapshotSink{SnapshotSink: sink, node: s.node}, nil
}

// snapshotSink receives a snapshot. Once another node's snapshot is complete, this node restarts from
// it. Until its files are fetched, they are older than the snapshot.
type snapshotSink struct {
	raft.SnapshotSink
	node *Node
	own  bool
}

// Close keeps the snapshot.
func (s *snapshotSink) Close() error {
	if !s.own {
		s.node.received.Add(1)
		if err := s.node.setFetching(true); err != nil {
			return errors.Join(err, s.Cancel())
		}
	}
	return s.SnapshotSink.Close()
}

// logWriter passes raft's log lines to slog.
type logWriter struct{ n *Node }

// Write leaves out the errors of requests that Close interrupts.
func (w logWriter) Write(p []byte) (int, error) {
	if w.n.closing.Err() == nil {
		_, line, _ := strings.Cut(string(p), "raft: ")
		w.n.log.Warn("raft: " + strings.TrimSpace(line))
	}
	return len(p), nil
}

// Close stops the node. A leader transfers the leadership first, for at most Options.Election or one second. Databases that Node.Open returned must not be used after it.
// Acknowledged transactions are kept. The files are ordinary SQLite databases.
func (n *Node) Close() error {
	if n.retiring.Swap(true) {
		return nil
	}
	n.handOver()
	n.stop()
	if n.wire != nil {
		n.wire.cut() // raft waits for its requests
	}
	var errs []error
	if n.raft != nil {
		errs = append(errs, n.raft.Shutdown().Error())
	}
	n.leading.Store(nil)
	n.evict(nil)
	if n.wire != nil {
		errs = append(errs, n.wire.Close())
	}
	n.over.Wait()
	n.abandon(raft.ErrRaftShutdown)
	for _, db := range n.databases() {
		db.mu.Lock()
		errs = append(errs, db.close())
		db.mu.Unlock()
	}
	if n.store != nil {
		errs = append(errs, n.store.Close(), n.mark.Close())
	}
	vfs.Register(n.vfsName, closedVFS{vfs.Find("os")})
	return errors.Join(errs...)
}

// lead makes the node ready when it has become the leader.
func (n *Node) lead() {
	for {
		select {
		case <-n.closing.Done():
			return
		case leads := <-n.raft.LeaderCh():
			n.leading.Store(nil)
			n.prompt.Store(false)
			if !leads {
				n.evict(nil)
				continue
			}
			n.evict(nil) // connections left from an earlier term
			n.awaitWriters()
			term := n.raft.CurrentTerm()
			if !n.catchUpWith(term) {
				continue
			}
			n.prompt.Store(true)
			n.flush()
			n.leading.Store(&leadership{term})
			n.recover()
			n.mu.RLock()
			cluster := n.cluster
			n.mu.RUnlock()
			if cluster == 0 {
				n.over.Go(func() {
					id := binary.LittleEndian.AppendUint64(nil, rand.Uint64()|1)
					_ = n.commit(n.closing, opCluster, id) // the next leader tries again
				})
			}
			n.lookAtMembers()
			n.over.Go(n.dropParts)
			if len(n.opts.Addresses) > 0 {
				n.over.Go(n.readdress)
			}
			n.log.Info("replica: this node is the leader", "term", term)
		}
	}
}

// answer returns the error of a future. When raft is shut down, it drops committed entries that wait for
// the state machine, and never answers their futures.
func (n *Node) answer(f raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		return err
	case <-n.closing.Done():
		return raft.ErrRaftShutdown
	}
}

// flush writes the deferred transactions of all databases into their files.
func (n *Node) flush() {
	for _, db := range n.databases() {
		db.mu.Lock()
		_ = db.flush() // it is repaired
		db.mu.Unlock()
	}
}

// awaitWriters waits for the calls of ended writers. One of them may have to write a transaction into
// its file that was committed in an earlier term, and that others have read from other nodes meanwhile.
func (n *Node) awaitWriters() {
	n.connMu.Lock()
	var all []*conn
	for k := range n.conns {
		if k.writer {
			all = append(all, k)
		}
	}
	n.connMu.Unlock()
	for _, k := range all {
		k.end()
	}
}

// catchUpWith waits until all entries from before a term of this node are applied. It returns false if
// the node leads no longer. A barrier fails while the leadership is being transferred, which may fail too.
func (n *Node) catchUpWith(term uint64) bool {
	for n.answer(n.raft.Barrier(0)) != nil {
		select {
		case <-n.closing.Done():
			return false
		case <-time.After(n.opts.Election / 50):
		}
		if n.raft.State() != raft.Leader || n.raft.CurrentTerm() != term {
			return false
		}
	}
	return true
}

// leader returns the leadership of the current term, nil if this node does not lead or does
// not yet have all entries that were committed before.
func (n *Node) leader() *leadership {
	l := n.leading.Load()
	if l == nil || n.fitness.stuck.Load() || n.bug != bugStaleRead && (n.raft.State() != raft.Leader || n.raft.CurrentTerm() != l.term) {
		return nil
	}
	return l
}

func (n *Node) notLeader() error {
	if n.closing.Err() != nil {
		return net.ErrClosed
	}
	address, id := n.raft.LeaderWithID()
	if string(id) == n.opts.ID {
		return &NotLeaderError{} // this node has just been elected and is not ready
	}
	return &NotLeaderError{string(id), string(address)}
}

func (n *Node) writable() error {
	if n.leader() == nil {
		return n.notLeader()
	}
	return nil
}

// recover is called when all entries that were committed before the node started have been
// applied.
func (n *Node) recover() {
	if n.recovered.Swap(true) {
		return
	}
	for _, db := range n.databases() {
		db.settle()
	}
}

// giveUp transfers the leadership after a failure of the disk.
func (n *Node) giveUp() {
	_ = n.raft.LeadershipTransfer() // raft may be closed before it answers
	n.store.note()
}

func (n *Node) propose(kind byte, rest []byte) *proposal {
	p := &proposal{id: proposalID{n.run, n.next.Add(1)}, begin: time.Now(), done: make(chan error, 1)}
	p.op = appendOp(make([]byte, 0, opHeader+len(rest)), kind, p.id, rest)
	n.pendMu.Lock()
	defer n.pendMu.Unlock()
	if n.pending == nil { // the node is closed
		p.finish(net.ErrClosed)
		return p
	}
	n.pending[p.id] = p
	return p
}

// claim removes a proposal from those that wait. The caller must finish it.
func (n *Node) claim(id proposalID) *proposal {
	n.pendMu.Lock()
	defer n.pendMu.Unlock()
	p := n.pending[id]
	delete(n.pending, id)
	return p
}

// commit proposes an operation and waits for its result.
func (n *Node) commit(ctx context.Context, kind byte, rest []byte) error {
	p := n.propose(kind, rest)
	n.enqueue(ctx, p)
	return n.await(ctx, nil, p, func() {})
}

// enqueue passes a proposal to the proposer. If that is impossible, the proposal's result is the reason.
func (n *Node) enqueue(ctx context.Context, p *proposal) {
	select {
	case n.queue <- p:
		return
	default:
	}
	s := n.newStall(p.begin)
	defer s.timer.Stop()
	var err error
	for err == nil {
		select {
		case n.queue <- p:
			return
		case <-ctx.Done():
			err = reason(ctx)
		case <-n.closing.Done():
			err = net.ErrClosed
		case <-s.timer.C:
			err = s.over()
		}
	}
	n.claim(p.id).finish(err)
}

// stall ends a wait for a commit during which nothing is committed for Options.stall. A leader whose followers
// answer and cannot store entries, for example because their disks are full, goes on to lead.
type stall struct {
	n     *Node
	begin time.Time
	timer *time.Timer // over must be called when it fires
}

func (n *Node) newStall(begin time.Time) *stall {
	return &stall{n, begin, time.NewTimer(n.opts.stall - time.Since(begin))}
}

// over returns an error if the wait is over. Otherwise it sets the timer again.
func (s *stall) over() error {
	rest := s.n.untilStalled(s.begin)
	if rest <= 0 {
		return s.n.errStalled()
	}
	s.timer.Reset(rest)
	return nil
}

// untilStalled returns how long a wait that began at a time may go on if nothing is committed.
func (n *Node) untilStalled(begin time.Time) time.Duration {
	if moved := n.moved.Load(); moved != nil && moved.After(begin) {
		begin = *moved
	}
	return n.opts.stall - time.Since(begin)
}

func (n *Node) errStalled() error {
	return fmt.Errorf("replica: nothing was committed for %v although this node leads: too few members can store entries, for example because disks are full", n.opts.stall)
}

// abandon finishes the proposals that have no result, and refuses later ones.
func (n *Node) abandon(err error) {
	n.pendMu.Lock()
	defer n.pendMu.Unlock()
	for _, p := range n.pending {
		p.finish(&UncertainError{Err: err})
	}
	n.pending = nil
}

// entryBytes is the size of a raft entry from which no further operation is added. An entry has at most
// entryOps operations: a database's identity is made of the entry's index and the operation's number in 12 bits.
const (
	entryBytes = 4 << 20
	entryOps   = 1<<12 - 1
)

// While the results of opsInFlight operations or more are awaited, raft entries are made entrySpacing
// apart: the costs of an entry do not depend on its operations, and the waiting ones share the next entry.
// Fewer operations do not wait for each other. Where members are far apart, entrySpacing bounds what an operation
// waits.
const (
	opsInFlight  = 16
	entrySpacing = 2 * time.Millisecond
)

// proposer makes raft entries of the waiting operations. While it waits as above, or while raft writes an
// entry and Apply blocks, the next group collects. Raft keeps an entry in memory until it
// is applied, so a new one is made only if the others have fewer than Options.flight bytes.
func (n *Node) proposer() {
	inFlight, over := 0, make(chan int)
	var last time.Time // when the last entry was made
	for {
		queue := n.queue
		var spacing <-chan time.Time
		switch rest := entrySpacing - time.Since(last); {
		case n.flying.Load() >= n.opts.flight:
			queue = nil
		case inFlight >= opsInFlight && rest > 0:
			queue, spacing = nil, time.After(rest)
		}
		var group []*proposal
		select {
		case <-n.closing.Done():
			return
		case k := <-over:
			inFlight -= k
			continue
		case <-spacing:
			continue
		case p := <-queue:
			group = append(group, p)
		}
		n.gather()
		size := len(group[0].op)
	gather:
		for size < entryBytes && len(group) < entryOps {
			select {
			case p := <-n.queue:
				if size+len(p.op) > 110<<20 {
					n.claim(p.id).finish(&TooLargeError{n.opts.MaxTransaction})
					continue
				}
				group, size = append(group, p), size+len(p.op)
			default:
				break gather
			}
		}
		entry := make([]byte, 0, size)
		for _, p := range group {
			entry = append(entry, p.op...)
			p.op = nil
		}
		n.metrics.Entries.Add(1)
		inFlight += len(group)
		last = time.Now()
		bytes := int64(len(entry))
		n.flying.Add(bytes)
		future := n.raft.Apply(entry, 0)
		go func() {
			err := future.Error()
			n.flying.Add(-bytes)
			if err != nil {
				for _, p := range group {
					n.claim(p.id).finish(n.outcome(err))
					n.left(p)
				}
			}
			select {
			case over <- len(group):
			case <-n.closing.Done():
			}
		}()
	}
}

// gather yields while operations are added: the writers whose transactions were in the entry before have been
// woken at once, and propose the next ones when they have run. A writer that is alone is not delayed.
func (n *Node) gather() {
	begin := time.Now()
	for idle, waiting := 0, len(n.queue); idle < 3 && time.Since(begin) < time.Millisecond; idle++ {
		runtime.Gosched()
		if now := len(n.queue); now > waiting {
			idle, waiting = -1, now
		}
	}
}

// outcome translates raft's errors.
func (n *Node) outcome(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader):
		return n.notLeader() // the operation was not proposed
	case errors.Is(err, raft.ErrLeadershipTransferInProgress), errors.Is(err, raft.ErrEnqueueTimeout):
		return &NotLeaderError{}
	}
	return &UncertainError{Err: err}
}

// advance records that an entry was applied.
func (n *Node) advance(index uint64) {
	n.applied.Store(index)
	n.waitMu.Lock()
	defer n.waitMu.Unlock()
	if n.waiting != nil {
		close(n.waiting)
		n.waiting = nil
	}
}

// Wait waits until this node has applied a position, for example one that
// Node.Position returned on the leader after a commit: later reads with Stale see that
// commit.
func (n *Node) Wait(ctx context.Context, pos Position) error {
	for {
		n.waitMu.Lock()
		if n.applied.Load() >= pos.Index {
			n.waitMu.Unlock()
			return nil
		}
		if n.waiting == nil {
			n.waiting = make(chan struct{})
		}
		ch := n.waiting
		n.waitMu.Unlock()
		select {
		case <-ch:
		case <-ctx.Done():
			return ctx.Err()
		case <-n.closing.Done():
			return net.ErrClosed
		}
	}
}

// Position returns the state of a database on this node. After a commit on the leader it
// returns the state that the commit made, or a later one.
func (n *Node) Position(name string) (Position, error) {
	db, err := n.named(name)
	if err != nil {
		return Position{}, err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.pos, nil
}

// WaitLeader waits until a leader is known, and returns its ID and address. If it is this
// node, the node is ready to write.
func (n *Node) WaitLeader(ctx context.Context) (id, address string, err error) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		a, i := n.raft.LeaderWithID()
		if i != "" && (string(i) != n.opts.ID || n.leader() != nil) {
			return string(i), string(a), nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", "", fmt.Errorf("replica: no leader: %w", ctx.Err())
		case <-n.closing.Done():
			return "", "", net.ErrClosed
		}
	}
}

// The list of databases.

func (n *Node) databases() []*database {
	n.mu.RLock()
	defer n.mu.RUnlock()
	all := make([]*database, 0, len(n.dbs))
	for _, db := range n.dbs {
		all = append(all, db)
	}
	return all
}

// isDeleted reports whether a database was deleted by an entry that this node has applied.
func (n *Node) isDeleted(id uint64) bool {
	created := id >> 12
	return n.applied.Load() >= created && n.byID(id) == nil
}

func (n *Node) byID(id uint64) *database {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.dbs[id]
}

func (n *Node) named(name string) (*database, error) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if db := n.names[name]; db != nil {
		return db, nil
	}
	return nil, fmt.Errorf("replica: no database %q: %w", name, os.ErrNotExist)
}

// atPath returns the database of a file.
func (n *Node) atPath(path string) *database {
	rel, err := filepath.Rel(n.data, path)
	if err != nil {
		return nil
	}
	db, _ := n.named(filepath.ToSlash(rel))
	return db
}

// List returns the names of the databases, sorted, as this node knows them.
func (n *Node) List() []string {
	n.mu.RLock()
	defer n.mu.RUnlock()
	names := make([]string, 0, len(n.names))
	for name := range n.names {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// CreateOptions configure a new database.
type CreateOptions struct {
	PageSize   int  // in bytes; 0 means 4096
	AutoVacuum bool // PRAGMA auto_vacuum=INCREMENTAL
}

// Create creates an empty database on all nodes. The leader must be this node. A name is a
// relative path with slashes. If the database exists, the error matches
// os.ErrExist.
func (n *Node) Create(ctx context.Context, name string, o CreateOptions) error {
	if err := checkName(name); err != nil {
		return err
	}
	if err := n.writable(); err != nil {
		return err
	}
	n.mu.RLock()
	err := n.taken(name)
	n.mu.RUnlock()
	if err != nil {
		return err
	}
	size, pages, err := n.emptyDatabase(o)
	if err != nil {
		return err
	}
	return n.create(ctx, name, size, pages)
}

func (n *Node) create(ctx context.Context, name string, pageSize uint32, pages []byte) error {
	rest := binary.LittleEndian.AppendUint32(nil, pageSize)
	rest = binary.LittleEndian.AppendUint32(rest, uint32(len(name)))
	rest = append(append(rest, name...), pages...)
	return n.commit(ctx, opCreate, rest)
}

// The lengths of names in bytes. File systems allow 255 bytes for a part of a path, and SQLite 1024 for a
// path: names need room for the longest of reservedEndings.
const (
	maxName = 500
	maxPart = 255 - len("-journal")
	maxData = 1024 - len("-journal") - 1 - len("/") - maxName // the directory of the databases
)

// reservedEndings are those of the files beside a database.
var reservedEndings = []string{"-wal", "-shm", "-journal", ".new"}

// checkName returns an error for a name that some file system, or the log, could not have: a database whose
// file cannot be made on any node would be there forever.
func checkName(name string) error {
	switch {
	case !filepath.IsLocal(filepath.FromSlash(name)), name == ".", name != filepath.ToSlash(filepath.Clean(name)), len(name) > maxName:
		return fmt.Errorf("replica: %q is not a name for a database: use a relative path without dots, of at most %d bytes", name, maxName)
	case isSeal(name):
		return fmt.Errorf("replica: %q is not a name for a database: names that begin with %s are reserved", name, sealFile)
	case !utf8.ValidString(name), strings.ContainsAny(name, "?#%\x00"):
		return fmt.Errorf("replica: %q is not a name for a database: one of its characters is reserved, or is not valid UTF-8", name)
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > maxPart {
			return fmt.Errorf("replica: %q is not a name for a database: %q has %d bytes, the limit is %d", name, part, len(part), maxPart)
		}
		for _, ending := range reservedEndings {
			if strings.HasSuffix(part, ending) {
				return fmt.Errorf("replica: %q is not a name for a database: the ending %s of %q is reserved", name, ending, part)
			}
		}
	}
	return nil
}

// folders yields the directories of a name: those of "a/b/c" are "a/b" and "a".
func folders(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := strings.LastIndexByte(name, '/'); i > 0; i = strings.LastIndexByte(name[:i], '/') {
			if !yield(name[:i]) {
				return
			}
		}
	}
}

// taken returns an error if a name exists, is a directory of another name, or has another name as a
// directory. n.mu is locked.
func (n *Node) taken(name string) error {
	if n.names[name] != nil {
		return fmt.Errorf("replica: the database %q already exists: %w", name, os.ErrExist)
	}
	if n.folders[name] > 0 {
		return fmt.Errorf("replica: %q is a directory of databases: %w", name, os.ErrExist)
	}
	for folder := range folders(name) {
		if n.names[folder] != nil {
			return fmt.Errorf("replica: %q is a database and cannot be the directory of %q: %w", folder, name, os.ErrExist)
		}
	}
	return nil
}

// countFolders adds by to the numbers of databases in the directories of a name. n.mu is locked.
func (n *Node) countFolders(name string, by int) {
	for folder := range folders(name) {
		if n.folders[folder] += by; n.folders[folder] == 0 {
			delete(n.folders, folder)
		}
	}
}

// emptyDatabases has the pages of emptyDatabase by the options, whose page size is not 0.
var emptyDatabases sync.Map

// emptyDatabase returns a database without tables that is in WAL mode. The pages are read-only:
// all databases with the same options begin with them.
func (n *Node) emptyDatabase(o CreateOptions) (pageSize uint32, pages []byte, err error) {
	if o.PageSize == 0 {
		o.PageSize = 4096
	}
	if made, ok := emptyDatabases.Load(o); ok {
		return uint32(o.PageSize), made.([]byte), nil
	}
	// The system may have no directory for temporary files.
	staging := filepath.Join(n.opts.Dir, "staging")
	if err := os.MkdirAll(staging, 0o700); err != nil {
		return 0, nil, err
	}
	dir, err := os.MkdirTemp(staging, "empty-")
	if err != nil {
		return 0, nil, err
	}
	defer os.RemoveAll(dir)
	vacuum := "NONE"
	if o.AutoVacuum {
		vacuum = "INCREMENTAL"
	}
	path := filepath.Join(dir, "db")
	c, err := sqlite3.Open((&url.URL{Scheme: "file", OmitHost: true, Path: path}).String() + "?vfs=os")
	if err != nil {
		return 0, nil, err
	}
	err = c.Exec(fmt.Sprintf("PRAGMA page_size=%d; PRAGMA auto_vacuum=%s; PRAGMA journal_mode=WAL; CREATE TABLE t(x); DROP TABLE t; VACUUM", o.PageSize, vacuum))
	if err = errors.Join(err, c.Close()); err != nil {
		return 0, nil, err
	}
	if pages, err = os.ReadFile(path); err != nil {
		return 0, nil, err
	}
	if len(pages) < o.PageSize || len(pages)%o.PageSize != 0 || binary.BigEndian.Uint16(pages[16:]) != uint16(o.PageSize&0xffff|o.PageSize>>16) {
		return 0, nil, fmt.Errorf("replica: page size %d is not a power of two between 512 and 65536", o.PageSize)
	}
	emptyDatabases.Store(o, pages)
	return uint32(o.PageSize), pages, nil
}

// created is a create operation that raft's log brings.
func (n *Node) created(at Position, id uint64, name string, pageSize uint32, pages []byte) error {
	for i := 0; i < len(pages); i += int(pageSize) {
		at.Sum ^= pageSum(uint32(i/int(pageSize))+1, pages[i:i+int(pageSize)])
	}
	return n.define(at, id, name, pageSize, func(db *database) error { return n.writeFile(db.path, pages) })
}

// define adds a database. make creates its file.
func (n *Node) define(at Position, id uint64, name string, pageSize uint32, make func(*database) error) error {
	if err := checkName(name); err != nil {
		return err
	}
	n.mu.RLock()
	err := n.taken(name)
	n.mu.RUnlock()
	if err != nil {
		return err
	}
	db := n.newDatabase(id, name, pageSize, at)
	// An existing file is from before a crash: load finds its position.
	if err := n.clearWay(db); err != nil {
		n.log.Warn("replica: what is in the place of a database cannot be removed", "database", name, "error", err)
	}
	_, err = os.Stat(db.path)
	if errors.Is(err, os.ErrNotExist) || err == nil && n.recovered.Load() {
		if err = n.mkdirAll(filepath.Dir(db.path)); err == nil {
			err = removeBeside(db.path)
		}
		if err == nil {
			err = make(db)
		}
	}
	n.mu.Lock()
	n.dbs[id], n.names[name] = db, db
	n.countFolders(name, 1)
	n.mu.Unlock()
	db.dirty.Store(true)
	if err != nil {
		db.mu.Lock()
		defer db.mu.Unlock()
		db.fail(err)
	}
	return nil
}

// clearWay removes a directory that has the name of a database, and files that have the names of its
// directories. They are left from databases that were deleted, or are those of databases that raft's log
// creates again after this one.
func (n *Node) clearWay(db *database) error {
	for folder := range folders(db.name) {
		path := filepath.Join(n.data, filepath.FromSlash(folder))
		if info, err := os.Lstat(path); err == nil && !info.IsDir() {
			if err := errors.Join(os.Remove(path), removeBeside(path)); err != nil {
				return err
			}
		}
	}
	if info, err := os.Lstat(db.path); err == nil && info.IsDir() {
		return os.RemoveAll(db.path)
	}
	return nil
}

// mkdirAll makes a directory and those above it, durably.
func (n *Node) mkdirAll(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, os.ErrNotExist) {
		if err = n.mkdirAll(filepath.Dir(dir)); err == nil {
			err = os.Mkdir(dir, 0o700)
		}
	}
	switch {
	case err == nil:
		return n.syncFile(filepath.Dir(dir))
	case errors.Is(err, os.ErrExist):
		return nil
	}
	return err
}

// removeBeside removes the WAL and the WAL index of a database.
func removeBeside(path string) error {
	for _, suffix := range []string{"-wal", "-shm"} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Delete deletes a database on all nodes. The leader must be this node. Connections that
// are open get errors.
func (n *Node) Delete(ctx context.Context, name string) error {
	db, err := n.named(name)
	if err == nil {
		err = n.writable()
	}
	if err != nil {
		return err
	}
	return n.commit(ctx, opDelete, binary.LittleEndian.AppendUint64(nil, db.id))
}

func (n *Node) deleted(id uint64) error {
	n.mu.Lock()
	db := n.dbs[id]
	if db != nil {
		delete(n.dbs, id)
		delete(n.names, db.name)
		n.countFolders(db.name, -1)
	}
	n.mu.Unlock()
	if db == nil {
		return errDeleted
	}
	return db.remove()
}

func (db *database) remove() error {
	db.mu.Lock()
	db.gone = true
	db.epoch.Add(1)
	err := db.close()
	db.mu.Unlock()
	db.node.closed(db)
	db.node.evict(db)
	db.node.mu.Lock()
	db.node.empty(filepath.Dir(db.path))
	db.node.mu.Unlock()
	if rerr := os.Remove(db.path); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	return errors.Join(err, removeBeside(db.path))
}

// restore takes over the list of databases from a snapshot.
func (n *Node) restore(m manifest) error {
	if n.cluster != 0 && m.Cluster != 0 && n.cluster != m.Cluster && !n.recovering {
		return fmt.Errorf("replica: the snapshot is from cluster %x, and this node belongs to %x", m.Cluster, n.cluster)
	}
	if m.Cluster != 0 {
		if err := n.join(m.Cluster); err != nil {
			return err
		}
	}
	if err := n.adopt(m.Directories); err != nil {
		return err
	}
	n.mu.RLock()
	running, interrupted := n.running.Load(), n.fetching
	n.mu.RUnlock()
	if running {
		if err := n.setFetching(true); err != nil {
			return err
		}
	}
	dbs, names := make(map[uint64]*database), make(map[string]*database)
	for _, s := range m.Databases {
		if err := checkName(s.Name); err != nil {
			return err
		}
		db := n.byID(s.ID)
		if db == nil || !db.resume(s) {
			db = n.newDatabase(s.ID, s.Name, s.PageSize, s.Position)
			db.missed, db.unsure = running, !running && interrupted
			db.dirty.Store(true) // the file may have unsynced writes of an earlier process
		}
		dbs[s.ID], names[s.Name] = db, db
	}
	n.mu.Lock()
	old := n.names
	n.dbs, n.names, n.folders = dbs, names, make(map[string]int)
	for name := range names {
		n.countFolders(name, 1)
	}
	n.mu.Unlock()
	for name, db := range old {
		if names[name] == db {
			continue
		}
		if names[name] != nil && names[name].id == db.id {
			db.mu.Lock()
			db.gone = true
			db.epoch.Add(1)
			_ = db.close()
			db.mu.Unlock()
			n.closed(db)
			n.evict(db)
		} else if err := db.remove(); err != nil {
			return err
		}
	}
	n.applied.Store(m.Index)
	if running {
		if err := n.fetchAll(names); err != nil {
			return err
		}
		// raft removes the entries by which a file could be repaired after a power cut
		if err := n.syncFiles(); err != nil {
			return err
		}
		if err := n.setFetching(false); err != nil {
			return err
		}
		n.sweep()
	}
	n.advance(m.Index)
	return nil
}

// opened records that a database has open files, and closes those of other databases if too
// many are open.
func (n *Node) opened(db *database) {
	n.openMu.Lock()
	defer n.openMu.Unlock()
	n.open = append(slices.DeleteFunc(n.open, func(d *database) bool { return d == db }), db)
	n.trim(db)
}

// trim closes the files of the databases that were opened first, but not those of db. Those
// that are in use are looked at again later. n.openMu is locked.
func (n *Node) trim(db *database) {
	for i := 0; len(n.open) > n.opts.OpenDatabases && i < len(n.open); {
		old := n.open[i]
		if old == db || !old.mu.TryLock() {
			i++
			continue
		}
		if old.writers.Load() > 0 || old.broken != nil || len(old.deferred) > 0 {
			old.mu.Unlock()
			i++
			continue
		}
		if err := old.close(); err != nil {
			n.log.Warn("replica: closing an idle database", "database", old.name, "error", err)
		}
		old.mu.Unlock()
		n.open = slices.Delete(n.open, i, i+1)
	}
	if len(n.open) > n.opts.OpenDatabases && !n.trimming && n.closing.Err() == nil {
		n.trimming = true
		time.AfterFunc(time.Second, func() {
			n.openMu.Lock()
			defer n.openMu.Unlock()
			n.trimming = false
			if n.closing.Err() == nil {
				n.trim(nil)
			}
		})
	}
}

func (n *Node) closed(db *database) {
	n.openMu.Lock()
	defer n.openMu.Unlock()
	n.open = slices.DeleteFunc(n.open, func(d *database) bool { return d == db })
}

// watchLog takes a snapshot when the log is large, so that raft cuts it.
func (n *Node) watchLog() {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-n.closing.Done():
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

// hasRoom reports whether raft's log may become longer for a member that fetches files.
func (n *Node) hasRoom() bool {
	free, total, err := space(n.opts.Dir)
	return err == nil && free > total/10 && n.store.Bytes() < 8*n.opts.LogBytes
}

// Member is a node of the cluster.
type Member struct {
	ID, Address string
	Voter       bool // counts for majorities, see [Node.AddMember]
}

// Status is the state of a node.
type Status struct {
	ID, Address string
	Leader      string   // ID of the leader, "" if none is known
	Leads       bool     // this node is the leader and is ready to write
	Term        uint64   // raft's term
	Applied     uint64   // index of the last entry of raft's log that this node has applied
	LastEntry   uint64   // index of the last entry in that log
	LogBytes    int64    // size of that log in bytes
	Databases   int      // number of databases
	Broken      []string // names of the databases that this node does not serve, see [BrokenError]
	Members     []Member // members of the cluster, as this node knows them
	Cluster     string   // random identity of the cluster, in hexadecimal
	// Silence is for how long this node has heard nothing of the leader; 0 on the leader, negative if it never has.
	Silence time.Duration
	Unfit   string // why this node cannot lead, for example that its disk fails; "" if it can
}

// Status returns the state of this node.
func (n *Node) Status() Status {
	_, leader := n.raft.LeaderWithID()
	s := Status{ID: n.opts.ID, Address: n.Address(), Leader: string(leader), Leads: n.leader() != nil, Term: n.raft.CurrentTerm(),
		Applied: n.applied.Load(), LastEntry: n.raft.LastIndex(), LogBytes: n.store.Bytes()}
	for _, db := range n.databases() {
		s.Databases++
		db.mu.Lock()
		if db.broken != nil {
			s.Broken = append(s.Broken, db.name)
		}
		db.mu.Unlock()
	}
	slices.Sort(s.Broken)
	if last := n.raft.LastContact(); last.IsZero() && !s.Leads {
		s.Silence = -1
	} else if !s.Leads {
		s.Silence = time.Since(last)
	}
	if err := n.fitness.why(); err != nil {
		s.Unfit = err.Error()
	}
	n.mu.RLock()
	s.Cluster = fmt.Sprintf("%016x", n.cluster)
	n.mu.RUnlock()
	if f := n.raft.GetConfiguration(); f.Error() == nil {
		for _, m := range f.Configuration().Servers {
			s.Members = append(s.Members, Member{string(m.ID), string(m.Address), m.Suffrage == raft.Voter})
		}
	}
	return s
}

// Address returns the address by which other nodes reach this one.
func (n *Node) Address() string { return n.wire.address }

// ID returns the node's name.
func (n *Node) ID() string { return n.opts.ID }

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
		n.mu.RLock()
		config := n.dirs.Config // raft refuses a change if another one came after it
		n.mu.RUnlock()
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
		begin, target := time.Now(), n.newest()
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
			if perr := n.pause(ctx); perr != nil && n.leader() != nil {
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

// newest returns the index of the newest entry that this node has begun to apply. Commits are acknowledged while
// their entries are being applied.
func (n *Node) newest() uint64 { return max(n.began.Load(), n.applied.Load()) }

// pause waits for a short time. It returns an error if this node does not lead, or ctx is done.
func (n *Node) pause(ctx context.Context) error {
	select {
	case <-time.After(n.opts.Election / 20):
	case <-ctx.Done():
	case <-n.closing.Done():
	}
	return cmp.Or(n.writable(), ctx.Err())
}

// RemoveMember removes a node. The leader must be this node; it may remove itself. It returns an error if the ID
// is not a member.
func (n *Node) RemoveMember(ctx context.Context, id string) error {
	if err := n.writable(); err != nil {
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
	if err := n.writable(); err != nil {
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
	s := n.newStall(time.Now())
	defer s.timer.Stop()
	var err error
	for err == nil {
		select {
		case err := <-done:
			return n.changed(err)
		case <-ctx.Done():
			err = ctx.Err()
		case <-n.closing.Done():
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
		return n.notLeader()
	case errors.Is(err, raft.ErrLeadershipLost):
		return &UncertainError{Err: err}
	case err != nil && strings.HasPrefix(err.Error(), "configuration changed since"): // raft has no value for it
		return fmt.Errorf("%w: %w", errReconfigured, err)
	}
	return err
}

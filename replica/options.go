// SPDX-License-Identifier: MIT

package replica

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
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

	bug           seededBug             // for tests
	disk          disk                  // for tests
	around        func(network) network // for tests
	snapshotEvery time.Duration         // for tests; 0 is 20 seconds
	stall         time.Duration         // for tests; 0 is three times requestTimeout
	hung          time.Duration         // for tests; 0 is hungAfter, see fitness.limit
	flight        int64                 // for tests; 0 is 64 MiB
	flushAfter    time.Duration         // for tests; 0 is 50 ms, see database.receive
	versions      versions              // for tests; none is spoken
	forwards      forwardLimits         // for tests; 0 are forwardStatement and forwardRows
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
	o.versions = cmp.Or(o.versions, spoken)
	o.forwards.statement = cmp.Or(o.forwards.statement, forwardStatement)
	o.forwards.rows = cmp.Or(o.forwards.rows, forwardRows)
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
	o.hung = cmp.Or(o.hung, hungAfter)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	var err error
	o.Dir, err = filepath.Abs(o.Dir)
	return err
}

// seededBug is a bug that a test builds into a node to show that the checks find it. Only tests implement it.
type seededBug interface {
	acknowledgesEarly() bool // a commit, before a majority has it
	skips(index uint64) bool // an entry, on a follower
	appliesTwice() bool      // each transaction of another node, again after the next
	trustsItself() bool      // a read does not ask the majority
	keepsRefused() bool      // frames of a refused commit stay in the file
	syncsNothing() bool      // a snapshot does not sync the database files
}

// requestTimeout is how long a request of raft, also one with entries, may take.
func (o *Options) requestTimeout() time.Duration { return max(10*time.Second, 2*o.Election) }

// raftConfig returns raft's configuration.
func (o *Options) raftConfig() *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(o.ID)
	// A follower votes only after it has noticed itself that the leader is gone, which takes
	// one to three times HeartbeatTimeout with raft's random timers.
	c.HeartbeatTimeout, c.ElectionTimeout = o.Election/2, o.Election/2
	c.LeaderLeaseTimeout = o.Election / 2 // reads do not rely on it
	c.CommitTimeout = min(c.CommitTimeout, o.Election/4)
	c.SnapshotThreshold, c.TrailingLogs = uint64(o.SnapshotEntries), uint64(o.SnapshotEntries)
	c.SnapshotInterval = cmp.Or(o.snapshotEvery, 20*time.Second)
	c.ShutdownOnRemove = false // a leader that removed itself can be added again
	c.NoLegacyTelemetry = true
	return c
}

// SPDX-License-Identifier: MIT

package replica

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringside-io/ringside/appendlog"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// patience is for how long tests wait for what must happen: other programs may need all processors.
const patience = 4 * time.Minute

var long = flag.Duration("long", 0, "how long TestChaos plays seeds, in the place of -seeds; other tests then have their full sizes")

// size returns how much a test does: brief before a merge, full with -long.
func size(brief, full int) int {
	if *long > 0 {
		return full
	}
	return brief
}

// testBug is one seeded bug.
type testBug int

const (
	noBug testBug = iota
	bugEarlyAck
	bugSkipEntry // every seventh
	bugApplyTwice
	bugStaleRead
	bugApplyRefused
	bugNoSync
)

func (b testBug) acknowledgesEarly() bool { return b == bugEarlyAck }
func (b testBug) skips(index uint64) bool { return b == bugSkipEntry && index%7 == 0 }
func (b testBug) appliesTwice() bool      { return b == bugApplyTwice }
func (b testBug) trustsItself() bool      { return b == bugStaleRead }
func (b testBug) keepsRefused() bool      { return b == bugApplyRefused }
func (b testBug) syncsNothing() bool      { return b == bugNoSync }

// cluster is some nodes in this process.
type cluster struct {
	t     testing.TB
	dir   string
	addrs map[string]string
	base  Options
	bug   testBug

	mu    sync.Mutex
	nodes map[string]*Node
}

// newCluster starts nodes a, b, c, ...
func newCluster(t testing.TB, count int, o Options) *cluster {
	t.Helper()
	return seededCluster(t, count, o, noBug)
}

func seededCluster(t testing.TB, count int, o Options, bug testBug) *cluster {
	t.Helper()
	if p, ok := t.(*testing.T); ok {
		p.Parallel() // most of the time nodes wait for elections
	}
	return startCluster(t, count, o, bug)
}

// newNeighbour starts another cluster with the options of c.
func newNeighbour(c *cluster) *cluster {
	c.t.Helper()
	return startCluster(c.t, len(c.addrs), c.base, c.bug)
}

func startCluster(t testing.TB, count int, o Options, bug testBug) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir(), addrs: make(map[string]string), nodes: make(map[string]*Node), base: o, bug: bug}
	if c.base.Election == 0 {
		c.base.Election = 10 * time.Second
		if count == 1 { // it elects itself, see campaign
			c.base.Election = time.Second
		}
	}
	if c.base.hung == 0 { // beside other programs a disk takes longer for a write than a leader may wait
		c.base.hung = patience
	}
	if c.base.Logger == nil {
		c.base.Logger = slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelError}))
	}
	host := ringtest.OwnHost()
	if o.TLS != nil { // the certificates' address
		host = "127.0.0.1"
	}
	for i, a := range ringtest.FreeAddresses(t, host, count) {
		c.addrs[string(rune('a'+i))] = a
	}
	for id := range c.addrs {
		c.start(id)
	}
	if o.Election == 0 {
		c.campaign()
	}
	t.Cleanup(func() {
		for _, n := range c.all() {
			n.life.stop() // a leader that closes waits for a member that takes over
		}
		for id := range c.addrs {
			c.stop(id)
		}
	})
	return c
}

// campaign makes one node of a new cluster ask the others for votes, which it would do by itself after Options.Election. So that time
// can be long: beside other programs a leader may not run for seconds. Tests of elections set Options.Election, and wait.
func (c *cluster) campaign() {
	all := c.all()
	if len(all) == 1 {
		return // no member can ask it to; but it does not lose an election either
	}
	from, to := all[0], all[1]
	request := &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}
	if err := (base{from.wire.transport, from.wire}).TimeoutNow(raft.ServerID(to.ID()), raft.ServerAddress(to.Address()), request, new(raft.TimeoutNowResponse)); err != nil {
		c.t.Logf("the first election is left to raft's timers: %v", err)
	}
}

// crowded is how many times longer than on an idle machine a leader may not run, beside other programs.
var crowded = sync.OnceValue(func() float64 {
	load := 0.0 // programs that wait for a processor
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &load)
	}
	return max(1, min(load/float64(runtime.NumCPU())/4, 3))
})

func freeAddress(t testing.TB) string { return ringtest.FreeAddresses(t, ringtest.OwnHost(), 1)[0] }

// followerLogs is disk.written of all nodes of a cluster. It makes raft's logs of all but one node fail or wait.
type followerLogs struct {
	hook atomic.Pointer[func(appendlog.SegmentInfo) error]
}

func (f *followerLogs) written(g appendlog.SegmentInfo) error {
	if hook := f.hook.Load(); hook != nil {
		return (*hook)(g)
	}
	return nil
}

// set calls do for each write of a log that is not the leader's.
func (f *followerLogs) set(leader *Node, do func() error) {
	dir := leader.opts.Dir + string(filepath.Separator)
	hook := func(g appendlog.SegmentInfo) error {
		if strings.HasPrefix(g.Path, dir) {
			return nil
		}
		return do()
	}
	f.hook.Store(&hook)
}

func (f *followerLogs) reset() { f.hook.Store(nil) }

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	if w.t.Context().Err() == nil {
		w.t.Logf("%s", p)
	}
	return len(p), nil
}

func (c *cluster) options(id string) Options {
	o := c.base
	o.Election = time.Duration(float64(o.Election) * crowded())
	o.ID, o.Dir, o.Listen, o.Peers = id, filepath.Join(c.dir, id), c.addrs[id], c.addrs
	return o
}

func (c *cluster) start(id string) *Node {
	c.t.Helper()
	return c.open(c.options(id))
}

// join starts a node that belongs to no cluster, and makes it a member.
func (c *cluster) join(id string) *Node {
	c.t.Helper()
	if c.addrs[id] == "" {
		c.addrs[id] = freeAddress(c.t)
	}
	o := c.options(id)
	o.Peers = nil
	n := c.open(o)
	must(c.t, c.leader().AddMember(c.t.Context(), id, n.Address()))
	return n
}

func (c *cluster) open(o Options) *Node {
	c.t.Helper()
	o.bug = c.bug
	n, err := openNode(o)
	if err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[o.ID] = n
	return n
}

func (c *cluster) stop(id string) {
	c.t.Helper()
	c.mu.Lock()
	n := c.nodes[id]
	delete(c.nodes, id)
	c.mu.Unlock()
	if n != nil {
		if err := n.Close(); err != nil {
			c.t.Errorf("closing %s: %v", id, err)
		}
	}
}

func (c *cluster) node(id string) *Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[id]
}

func (c *cluster) all() []*Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*Node
	for _, n := range c.nodes {
		all = append(all, n)
	}
	return all
}

// leader returns the node that leads, or nil without a leader.
func (c *cluster) leader() *Node {
	c.t.Helper()
	var leader *Node
	until(c.t, "a leader", func() bool {
		for _, n := range c.all() {
			if n.role.leader() != nil && n.reads.confirmLeads(c.t.Context()) == nil {
				leader = n
				return true
			}
		}
		return false
	})
	return leader
}

// followers returns the other nodes.
func (c *cluster) followers() []*Node {
	c.t.Helper()
	leader := c.leader()
	var others []*Node
	for _, n := range c.all() {
		if n != leader {
			others = append(others, n)
		}
	}
	return others
}

// commit executes a statement, which may be executed again, on the node that leads, and returns the node. On a
// busy machine elections follow each other.
func (c *cluster) commit(statement string) (leader *Node) {
	c.t.Helper()
	until(c.t, "a leader that stays for a commit", func() bool {
		leader = c.leader()
		_, err := open(c.t, leader, "db").ExecContext(c.t.Context(), statement)
		return err == nil
	})
	return leader
}

// other returns a node that runs beside n.
func (c *cluster) other(n *Node) *Node {
	all := c.all()
	return all[slices.IndexFunc(all, func(m *Node) bool { return m != n })]
}

// judge compares the pages on all nodes.
func (c *cluster) judge() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	leader := c.leader()
	until(c.t, "all databases are whole", func() bool {
		for _, n := range c.all() {
			if s := n.Status(); len(s.Broken) > 0 || !n.progress.recovered.Load() {
				return false
			}
		}
		return true
	})
	for {
		err := leader.Verify(ctx)
		if err == nil {
			return
		}
		if errors.Is(err, ErrDiffer) || ctx.Err() != nil {
			c.t.Fatalf("%v", err)
		}
		leader = c.leader()
	}
}

// caughtUp waits until nodes have all transactions of the leader's database.
func caughtUp(t testing.TB, leader *Node, database string, nodes ...*Node) {
	t.Helper()
	pos, err := leader.Position(database)
	must(t, err)
	for _, n := range nodes {
		must(t, n.Wait(t.Context(), pos))
	}
}

func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not after %v", what, patience)
		}
	}
}

// pastElections returns the result of run. It runs again while there is no leader: on a slow machine any operation may
// meet an election.
func pastElections(t testing.TB, run func() error) (err error) {
	t.Helper()
	until(t, "the operation meets no election", func() bool {
		err = run()
		_, elects := errors.AsType[*NotLeaderError](err)
		return !elects
	})
	return err
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// atomically executes statements in a transaction.
func atomically(ctx context.Context, db *sql.DB, statements string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, statements); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}

// writer executes a statement repeatedly, until it fails or stop is called. stop returns
// the number of successes, and the error.
func writer(ctx context.Context, db *sql.DB, statement string) (stop func() (written int, err error)) {
	end, done := make(chan struct{}), make(chan error, 1)
	written := 0
	go func() {
		for {
			select {
			case <-end:
				done <- nil
				return
			default:
			}
			if _, err := db.ExecContext(ctx, statement); err != nil {
				done <- err
				return
			}
			written++
		}
	}()
	return func() (int, error) {
		close(end)
		err := <-done
		return written, err
	}
}

func contextFor(t testing.TB) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), patience)
}

// delayer holds back replies to AppendEntries and to requests for terms, and loses requests, of
// the nodes whose options contain its around function.
type delayer struct {
	only string // address of the only node that is concerned; "" means all

	mu      sync.Mutex
	lost    bool
	asking  bool          // requests for terms are not lost
	gate    chan struct{} // replies wait until it is closed; nil: they do not wait
	waiting map[raft.ServerID]bool
}

// hold holds back replies that arrive from now on.
func (d *delayer) hold() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gate, d.waiting = make(chan struct{}), make(map[raft.ServerID]bool)
}

// held returns the number of members with a reply that is held back.
func (d *delayer) held() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.waiting)
}

// heldTerm reports whether a member's reply with its term is held back.
func (d *delayer) heldTerm() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for from := range d.waiting {
		if strings.HasPrefix(string(from), "term of ") {
			return true
		}
	}
	return false
}

// ask lets requests for terms through, also while others are lost.
func (d *delayer) ask() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asking = true
}

// lose makes requests fail from now on.
func (d *delayer) lose() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost = true
}

// release delivers the replies that are held back.
func (d *delayer) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gate != nil {
		close(d.gate)
		d.gate = nil
	}
}

// pass delivers all replies that are held back and lets everything through from now on.
func (d *delayer) pass() {
	d.release()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost = false
}

func (d *delayer) request() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost {
		return errors.New("lost by the test")
	}
	return nil
}

func (d *delayer) reply(from raft.ServerID) {
	d.mu.Lock()
	gate := d.gate
	if gate != nil {
		d.waiting[from] = true
	}
	d.mu.Unlock()
	if gate != nil {
		<-gate
	}
}

func (d *delayer) around(n network) network {
	if d.only != "" && string(n.LocalAddr()) != d.only {
		return n
	}
	return delayed{n, d}
}

type delayed struct {
	network
	d *delayer
}

func (n delayed) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if err := n.d.request(); err != nil {
		return err
	}
	err := n.network.AppendEntries(id, target, args, resp)
	n.d.reply(id)
	return err
}

func (n delayed) MemberTerm(id raft.ServerID, target raft.ServerAddress, until time.Time) (uint64, error) {
	n.d.mu.Lock()
	asking := n.d.asking
	n.d.mu.Unlock()
	if err := n.d.request(); err != nil && !asking {
		return 0, err
	}
	term, err := n.network.MemberTerm(id, target, until)
	n.d.reply("term of " + id)
	return term, err
}

func (n delayed) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	p, err := n.network.AppendEntriesPipeline(id, target)
	return delayedPipeline{p, n.d}, err
}

type delayedPipeline struct {
	raft.AppendPipeline
	d *delayer
}

func (p delayedPipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if err := p.d.request(); err != nil {
		return nil, err
	}
	return p.AppendPipeline.AppendEntries(args, resp)
}

// createOp proposes the creation of a database, without passing it to raft.
func createOp(t *testing.T, n *Node, name string) *proposal {
	t.Helper()
	size, pages, err := n.catalog.emptyDatabase(CreateOptions{})
	must(t, err)
	rest := binary.LittleEndian.AppendUint32(nil, size)
	rest = binary.LittleEndian.AppendUint32(rest, uint32(len(name)))
	return n.proposer.propose(opCreate, append(append(rest, name...), pages...))
}

// SPDX-License-Identifier: MIT

package replica

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/ncruces/go-sqlite3"
)

var (
	seeds    = flag.Int("seeds", 1, "how many seeds TestChaos plays")
	seed     = flag.Uint64("seed", 0, "the first of them")
	duration = flag.Duration("duration", 3*time.Second, "how long each is played")
)

// envNode is set in a child that is a node: its options.
const envNode = "RINGSIDE_TEST_REPLICA"

// childOptions are a node's, as its parent gives them.
type childOptions struct {
	ID, Dir, Listen string
	Peers           map[string]string
	Plant           plant
}

func TestMain(m *testing.M) {
	if o := os.Getenv(envNode); o != "" {
		if err := child(o); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// command is what a client asks of a node, by a line of JSON on its standard input. With an
// answer it comes back on the standard output.
type command struct {
	N    int    `json:"n"`
	Kind string `json:"kind"`
	DB   string `json:"db"`
	Key  int    `json:"key"`
	From int    `json:"from"`
	Val  int    `json:"val"`
}

type reply struct {
	N      int    `json:"n"`
	Err    string `json:"err,omitempty"` // "no": nothing happened; "uncertain"; else a failure of the test
	Val    int    `json:"val"`
	Detail string `json:"detail,omitempty"`
}

// child runs a node until its standard input ends.
func child(env string) error {
	var o childOptions
	if err := json.Unmarshal([]byte(env), &o); err != nil {
		return err
	}
	n, err := openNode(Options{ID: o.ID, Dir: o.Dir, Listen: o.Listen, Peers: o.Peers, Election: 300 * time.Millisecond, SnapshotEntries: 64,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))}, o.Plant)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	var over sync.WaitGroup
	pools := make(map[string]*sql.DB)
	in := json.NewDecoder(bufio.NewReader(os.Stdin))
	for {
		var c command
		if err := in.Decode(&c); err != nil {
			break
		}
		db := pools[c.DB]
		if db == nil && c.DB != "" {
			if db, err = n.Open(c.DB); err != nil {
				return err
			}
			pools[c.DB] = db
		}
		over.Go(func() {
			r := n.obey(db, c)
			mu.Lock()
			defer mu.Unlock()
			_ = out.Encode(r)
		})
	}
	over.Wait()
	for _, db := range pools {
		db.Close()
	}
	return n.Close()
}

func (n *Node) obey(db *sql.DB, c command) reply {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r := reply{N: c.N}
	var err error
	switch c.Kind {
	case "setup":
		var tx *sql.Tx
		if tx, err = db.BeginTx(ctx, nil); err == nil {
			_, err = tx.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS r(k INTEGER PRIMARY KEY, v INTEGER, pad); CREATE TABLE IF NOT EXISTS account(id INTEGER PRIMARY KEY, n INTEGER); CREATE TABLE IF NOT EXISTS history(a, b, n)")
			for i := 0; i < 4 && err == nil; i++ {
				_, err = tx.ExecContext(ctx, "INSERT OR IGNORE INTO r VALUES(?, 0, NULL)", i)
				if err == nil {
					_, err = tx.ExecContext(ctx, "INSERT OR IGNORE INTO account VALUES(?, 100)", i)
				}
			}
			if err == nil {
				err = tx.Commit()
			} else {
				_ = tx.Rollback()
			}
		}
	case "read":
		err = db.QueryRowContext(ctx, "SELECT v FROM r WHERE k=?", c.Key).Scan(&r.Val)
	case "write":
		_, err = db.ExecContext(ctx, "UPDATE r SET v=?, pad=randomblob(?) WHERE k=?", c.Val, c.Val%9000, c.Key)
	case "add": // reads and writes in one transaction; the answer is the value before
		err = db.QueryRowContext(ctx, "UPDATE r SET v=v+? WHERE k=? RETURNING v-?", c.Val, c.Key, c.Val).Scan(&r.Val)
	case "transfer":
		var tx *sql.Tx
		if tx, err = db.BeginTx(ctx, nil); err == nil {
			for _, q := range []struct {
				sql  string
				args []any
			}{
				{"UPDATE account SET n=n-? WHERE id=?", []any{c.Val, c.From}},
				{"UPDATE account SET n=n+? WHERE id=?", []any{c.Val, c.Key}},
				{"INSERT INTO history VALUES(?, ?, ?)", []any{c.From, c.Key, c.Val}},
			} {
				if err == nil {
					_, err = tx.ExecContext(ctx, q.sql, q.args...)
				}
			}
			if err == nil {
				err = tx.Commit()
			} else {
				_ = tx.Rollback()
			}
		}
	case "total":
		err = db.QueryRowContext(ctx, "SELECT sum(n) FROM account").Scan(&r.Val)
	case "check":
		s := n.Status()
		if !n.recovered.Load() || len(s.Broken) > 0 {
			r.Err, r.Detail = "no", fmt.Sprintf("not whole: %v, recovered %v", s.Broken, n.recovered.Load())
			return r
		}
		if n.metrics.Broken.Load() > 0 {
			r.Val = 1
		}
		if s.Leads {
			if err = n.Verify(ctx); err != nil && !errors.Is(err, ErrDiffer) {
				r.Err, r.Detail = "no", err.Error()
				return r
			}
		} else {
			r.Err = "no"
			return r
		}
	}
	switch e := (*NotLeaderError)(nil); {
	case err == nil:
	case errors.Is(err, ErrUncertain):
		r.Err, r.Detail = "uncertain", err.Error()
	case errors.As(err, &e), errors.Is(err, ErrConflict), errors.Is(err, sqlite3.BUSY), errors.Is(err, os.ErrNotExist), errors.Is(err, errRecovering):
		r.Err, r.Detail = "no", err.Error()
	default:
		if b := (*BrokenError)(nil); errors.As(err, &b) {
			r.Err, r.Detail = "no", err.Error()
			break
		}
		r.Err, r.Detail = "failed", err.Error()
	}
	return r
}

// process is a node in a child.
type process struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	mu   sync.Mutex
	wait map[int]chan reply
	gone chan struct{}
	log  *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func spawn(t testing.TB, o childOptions) *process {
	t.Helper()
	p := &process{cmd: exec.Command("/proc/self/exe"), wait: make(map[int]chan reply), gone: make(chan struct{}), log: new(lockedBuffer)}
	env, err := json.Marshal(o)
	must(t, err)
	p.cmd.Env = append(os.Environ(), envNode+"="+string(env), "GORACE=atexit_sleep_ms=0")
	p.cmd.Stderr = p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.in, err = p.cmd.StdinPipe()
	must(t, err)
	out, err := p.cmd.StdoutPipe()
	must(t, err)
	must(t, p.cmd.Start())
	go func() {
		d := json.NewDecoder(bufio.NewReader(out))
		for {
			var r reply
			if d.Decode(&r) != nil {
				break
			}
			p.mu.Lock()
			ch := p.wait[r.N]
			delete(p.wait, r.N)
			p.mu.Unlock()
			if ch != nil {
				ch <- r
			}
		}
		_ = p.cmd.Wait()
		close(p.gone)
	}()
	return p
}

var commandNumber atomic.Int64

// ask sends a command. An answer that does not come is an uncertain one.
func (p *process) ask(c command, patience time.Duration) reply {
	c.N = int(commandNumber.Add(1))
	ch := make(chan reply, 1)
	line, _ := json.Marshal(c)
	p.mu.Lock()
	p.wait[c.N] = ch
	_, err := p.in.Write(append(line, '\n'))
	p.mu.Unlock()
	if err != nil {
		return reply{Err: "no"}
	}
	select {
	case r := <-ch:
		return r
	case <-p.gone:
		select {
		case r := <-ch:
			return r
		default:
		}
	case <-time.After(patience):
	}
	return reply{Err: "uncertain"}
}

// chaos is a run of three nodes in children, with clients and a nemesis.
type chaos struct {
	t     testing.TB
	dir   string
	peers map[string]string
	plant plant
	mu    sync.Mutex
	nodes map[string]*process
	wires map[string]*faultyWire
	logs  []string
}

func newChaos(t testing.TB, p plant) *chaos {
	c := &chaos{t: t, dir: t.TempDir(), peers: make(map[string]string), plant: p, nodes: make(map[string]*process), wires: make(map[string]*faultyWire)}
	listen := make(map[string]string)
	for _, id := range []string{"a", "b", "c"} {
		listen[id] = freeAddress(t)
		// The others reach a node through a wire that can be cut.
		c.wires[id] = newFaultyWire(t, listen[id])
		c.peers[id] = c.wires[id].l.Addr().String()
	}
	for id := range c.peers {
		c.start(id, listen[id])
	}
	t.Cleanup(func() {
		for _, p := range c.nodes {
			_ = p.cmd.Process.Kill()
			<-p.gone
		}
	})
	return c
}

func (c *chaos) start(id, listen string) {
	p := spawn(c.t, childOptions{ID: id, Dir: filepath.Join(c.dir, id), Listen: listen, Peers: c.peers, Plant: c.plant})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[id] = p
}

func (c *chaos) node(id string) *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[id]
}

// faultyWire forwards connections to a node, unless it is cut.
type faultyWire struct {
	l     net.Listener
	to    string
	isCut atomic.Bool
	mu    sync.Mutex
	conns map[net.Conn]bool
}

func newFaultyWire(t testing.TB, to string) *faultyWire {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	w := &faultyWire{l: l, to: to, conns: make(map[net.Conn]bool)}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go w.forward(in)
		}
	}()
	t.Cleanup(func() { l.Close(); w.cut(true) })
	return w
}

func (w *faultyWire) forward(in net.Conn) {
	out, err := net.Dial("tcp", w.to)
	if err != nil {
		in.Close()
		return
	}
	w.mu.Lock()
	w.conns[in], w.conns[out] = true, true
	w.mu.Unlock()
	pipe := func(dst, src net.Conn) {
		p := make([]byte, 32<<10)
		for {
			n, err := src.Read(p)
			for w.isCut.Load() && err == nil {
				time.Sleep(5 * time.Millisecond) // nothing arrives; the connection stays
			}
			if n > 0 {
				if _, werr := dst.Write(p[:n]); werr != nil {
					err = werr
				}
			}
			if err != nil {
				dst.Close()
				src.Close()
				w.mu.Lock()
				delete(w.conns, dst)
				delete(w.conns, src)
				w.mu.Unlock()
				return
			}
		}
	}
	go pipe(out, in)
	pipe(in, out)
}

// cut stops what goes to the node and what it answers. Connections that the node made to
// others go on: the partition is in one direction.
func (w *faultyWire) cut(all bool) {
	w.isCut.Store(!all)
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		if all {
			c.Close()
		}
	}
}

// nemesis makes faults until stop is closed. It returns what it did.
func (c *chaos) nemesis(r *rand.Rand, stop <-chan struct{}) (did []string) {
	ids := []string{"a", "b", "c"}
	pause := func(d time.Duration) bool {
		select {
		case <-stop:
			return false
		case <-time.After(d):
			return true
		}
	}
	for pause(time.Duration(100+r.IntN(400)) * time.Millisecond) {
		id := ids[r.IntN(3)]
		w := c.wires[id]
		p := c.node(id)
		switch kind := r.IntN(5); kind {
		case 0, 1:
			did = append(did, "kill "+id)
			_ = p.cmd.Process.Kill()
			<-p.gone
			c.logs = append(c.logs, p.log.String())
			pause(time.Duration(r.IntN(300)) * time.Millisecond)
			c.start(id, w.to)
		case 2:
			did = append(did, "stop "+id)
			_ = p.cmd.Process.Signal(syscall.SIGSTOP)
			pause(time.Duration(200+r.IntN(800)) * time.Millisecond)
			_ = p.cmd.Process.Signal(syscall.SIGCONT)
		case 3:
			did = append(did, "cut "+id)
			w.cut(false)
			pause(time.Duration(200+r.IntN(1000)) * time.Millisecond)
			w.isCut.Store(false)
		case 4:
			did = append(did, "kill all")
			for _, id := range ids {
				_ = c.node(id).cmd.Process.Kill()
			}
			for _, id := range ids {
				<-c.node(id).gone
				c.start(id, c.wires[id].to)
			}
		}
	}
	return did
}

// input and output of an operation on a register.
type input struct {
	kind string
	db   string
	key  int
	val  int
}

type output struct {
	val     int
	unknown bool
}

// registers is the model: each register is by itself.
var registers = (&porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := make(map[string][]porcupine.Operation)
		for _, o := range history {
			i := o.Input.(input)
			k := fmt.Sprint(i.db, i.key)
			parts[k] = append(parts[k], o)
		}
		var all [][]porcupine.Operation
		for _, p := range parts {
			all = append(all, p)
		}
		return all
	},
	Init: func() []any { return []any{0} },
	Step: func(state, in, out any) []any {
		s, i, o := state.(int), in.(input), out.(output)
		switch i.kind {
		case "read":
			if o.unknown || s == o.val {
				return []any{s}
			}
			return nil
		case "write":
			if o.unknown {
				return []any{s, i.val}
			}
			return []any{i.val}
		}
		if o.unknown { // add
			return []any{s, s + i.val}
		}
		if s == o.val {
			return []any{s + i.val}
		}
		return nil
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
}).ToModel()

// play runs clients on all nodes while the nemesis works, and returns what is wrong.
func (c *chaos) play(seed uint64, d time.Duration) (wrong []string, operations int) {
	const clients = 6
	var mu sync.Mutex
	var history []porcupine.Operation
	begin := time.Now()
	dbs := []string{"one", "two"}
	fault := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		wrong = append(wrong, fmt.Sprintf(format, args...))
	}
	for _, db := range dbs {
		until(c.t, "the tables", func() bool {
			for _, id := range []string{"a", "b", "c"} {
				if r := c.node(id).ask(command{Kind: "setup", DB: db}, 10*time.Second); r.Err == "" {
					return true
				} else if r.Err == "failed" {
					c.t.Fatalf("setup: %s", r.Detail)
				}
			}
			return false
		})
	}
	stop := make(chan struct{})
	var over sync.WaitGroup
	var acked atomic.Int64
	for client := range clients {
		over.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(client)+100))
			id := client % 3
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				cmd := command{DB: dbs[r.IntN(2)], Key: r.IntN(3), Kind: []string{"read", "read", "write", "add", "transfer", "total"}[r.IntN(6)]}
				cmd.Val = 1 + n*clients + client
				if cmd.Kind == "transfer" {
					cmd.From, cmd.Val = 3, 1+r.IntN(5)
				}
				p := c.node([]string{"a", "b", "c"}[id])
				call := time.Since(begin).Nanoseconds()
				a := p.ask(cmd, 3*time.Second)
				back := time.Since(begin).Nanoseconds()
				switch {
				case a.Err == "no":
					id = (id + 1) % 3
					time.Sleep(time.Duration(1+r.IntN(10)) * time.Millisecond)
					continue
				case a.Err == "failed":
					fault("%+v: %s", cmd, a.Detail)
					continue
				case cmd.Kind == "total":
					if a.Err == "" && a.Val != 400 {
						fault("the accounts of %s have %d", cmd.DB, a.Val)
					}
					continue
				case cmd.Kind == "transfer":
					if a.Err == "" {
						acked.Add(1)
					}
					continue
				case a.Err != "" && cmd.Kind == "read":
					continue
				case a.Err != "":
					back = 1 << 62 // it may take effect at any later time
				default:
					acked.Add(1)
				}
				mu.Lock()
				history = append(history, porcupine.Operation{ClientId: client, Input: input{cmd.Kind, cmd.DB, cmd.Key, cmd.Val}, Call: call,
					Output: output{a.Val, a.Err != ""}, Return: back})
				mu.Unlock()
			}
		})
	}
	nemesis := make(chan []string, 1)
	go func() { nemesis <- c.nemesis(rand.New(rand.NewPCG(seed, 0)), stop) }()
	time.Sleep(d)
	close(stop)
	did := <-nemesis
	over.Wait()
	// An operation that timed out keeps its client busy in the model for ever: each gets one
	// of its own.
	for i := range history {
		if history[i].Return == 1<<62 {
			history[i].ClientId = clients + i
		}
	}
	if res, _ := porcupine.CheckOperationsVerbose(registers, history, 20*time.Second); res == porcupine.Illegal {
		fault("the history is not linearizable")
	} else if res == porcupine.Unknown {
		c.t.Logf("seed %d: the history is too long to be judged", seed)
	}
	c.t.Logf("seed %d: %d operations, %d acknowledged; %s", seed, len(history), acked.Load(), strings.Join(did, ", "))
	return append(wrong, c.judge()...), len(history)
}

// judge waits until the nodes are whole, compares them, and looks at their files.
func (c *chaos) judge() (wrong []string) {
	var last reply
	ids := []string{"a", "b", "c"}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		done := false
		for _, id := range ids {
			r := c.node(id).ask(command{Kind: "check"}, 15*time.Second)
			if r.Detail != "" || last.Detail == "" {
				last = r
			}
			if r.Err == "failed" {
				return append(wrong, "the nodes differ: "+r.Detail)
			}
			done = done || r.Err == ""
		}
		if done {
			break
		}
		if time.Now().After(end) {
			return append(wrong, fmt.Sprintf("the nodes are not whole: %+v", last))
		}
	}
	for _, id := range ids {
		p := c.node(id)
		if r := p.ask(command{Kind: "check"}, 15*time.Second); r.Val != 0 {
			wrong = append(wrong, id+" noticed pages that differ: "+p.log.String())
		}
		_ = p.in.Close()
		select {
		case <-p.gone:
		case <-time.After(patience):
			_ = p.cmd.Process.Signal(syscall.SIGQUIT)
			<-p.gone
			wrong = append(wrong, id+" does not close: "+p.log.String())
		}
		c.logs = append(c.logs, p.log.String())
	}
	for _, id := range ids {
		for _, db := range []string{"one", "two"} {
			stock(c.t, filepath.Join(c.dir, id, "data", db))
		}
	}
	for _, l := range c.logs {
		if strings.Contains(l, "DATA RACE") || strings.Contains(l, "panic:") {
			wrong = append(wrong, l)
		}
	}
	return wrong
}

// TestChaos plays clients against three nodes in processes of their own that are killed,
// stopped and cut off, and judges: the history is linearizable, money is neither made nor
// lost, all nodes have the same pages, stock SQLite finds the files whole.
func TestChaos(t *testing.T) {
	for i := range *seeds {
		s := *seed + uint64(i)
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			c := newChaos(t, plantNone)
			wrong, n := c.play(s, *duration)
			for _, w := range wrong {
				t.Error(w)
			}
			if n == 0 {
				t.Error("there was no operation")
			}
		})
	}
}

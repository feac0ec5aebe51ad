// SPDX-License-Identifier: MIT

//go:build unix

// Bench measures three nodes of replica as three processes on this machine, each with its own
// directory, and compares them with alternatives: one node with vfs=ringside-log, one raft
// entry per transaction over raft-boltdb and package net that is applied to SQLite on each
// node, and raft with raft-wal and an empty state machine. It prints a line for each result
// and writes a result file of the schema of ringside bench.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringside-io/ringside/internal/cli"
)

var (
	what     = flag.String("what", "many,one,reads,failover,catchup,idle", "what is measured")
	pairs    = flag.Int("pairs", 3, "how often, in turn")
	duration = flag.Duration("duration", 3*time.Second, "of each measured window")
	many     = flag.Int("databases", 64, "in the measurement with many")
	away     = flag.Int("away", 100_000, "commits that a node misses before it catches up")
	idle     = flag.Int("idle", 10_000, "databases of the idle cluster")
	place    = flag.String("dir", "", "where the nodes are; empty: a temporary directory")
	out      = flag.String("json", "", "a file for the results")
	child    = flag.String("node", "", "run as a node of this kind; used by the program itself")
)

func main() {
	flag.Parse()
	run := measureAll
	if *child != "" {
		run = func() error { return serve(*child) }
	}
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

// The kinds of nodes, which are the engines of the results.
const (
	kindReplica    = "ringside-replica"
	kindLog        = "ringside-log"
	kindStatements = "statements-boltdb"
	kindEmpty      = "raft-wal-empty"
)

// process is a node in a process of its own.
type process struct {
	id   string
	cmd  *exec.Cmd
	to   *json.Encoder
	in   io.Closer
	mu   sync.Mutex
	next int
	wait map[int]chan answer
}

func start(kind, id, dir string, peers map[string]string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{id: id, cmd: exec.Command(self, "-node", kind), wait: make(map[int]chan answer)}
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	from, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.in, p.to = in, json.NewEncoder(in)
	go p.read(from)
	if _, err := p.do(command{Op: "open", Node: id, Dir: filepath.Join(dir, id), Peers: peers}); err != nil {
		p.kill()
		return nil, err
	}
	return p, nil
}

func (p *process) read(from io.Reader) {
	for d := json.NewDecoder(from); ; {
		var a answer
		err := d.Decode(&a)
		p.mu.Lock()
		if err != nil {
			for _, ch := range p.wait {
				ch <- answer{Error: "the process has ended"}
			}
			clear(p.wait)
			p.mu.Unlock()
			return
		}
		if ch := p.wait[a.ID]; ch != nil {
			ch <- a
		}
		delete(p.wait, a.ID)
		p.mu.Unlock()
	}
}

func (p *process) do(c command) (answer, error) {
	p.mu.Lock()
	p.next++
	c.ID = p.next
	ch := make(chan answer, 1)
	p.wait[c.ID] = ch
	err := p.to.Encode(c)
	p.mu.Unlock()
	if err != nil {
		return answer{}, err
	}
	a := <-ch
	if a.Error != "" {
		return a, fmt.Errorf("%s: %s: %s", p.id, c.Op, a.Error)
	}
	return a, nil
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// cluster are the nodes of one system.
type cluster struct {
	kind, dir string
	peers     map[string]string
	nodes     []*process
	leader    *process
}

func open(kind string) (_ *cluster, err error) {
	c := &cluster{kind: kind, peers: make(map[string]string)}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if c.dir, err = os.MkdirTemp(*place, "nodes-"); err != nil {
		return nil, err
	}
	for _, id := range []string{"a", "b", "c"}[:members(kind)] {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // other addresses must differ
		c.peers[id] = l.Addr().String()
		if err := l.Close(); err != nil {
			return nil, err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.peers)) {
		p, err := start(kind, id, c.dir, c.peers)
		if err != nil {
			return nil, err
		}
		c.nodes = append(c.nodes, p)
	}
	return c, c.elect()
}

func members(kind string) int {
	if kind == kindLog {
		return 1
	}
	return 3
}

// elect waits until a node leads.
func (c *cluster) elect() error {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for _, p := range c.nodes {
			a, err := p.do(command{Op: "leads"})
			if err != nil {
				return err
			}
			if a.Yes {
				c.leader = p
				return nil
			}
		}
	}
	return fmt.Errorf("%s: no leader after a minute", c.kind)
}

// cpu returns the processor time that the nodes have used.
func (c *cluster) cpu() (total time.Duration, err error) {
	for _, p := range c.nodes {
		a, err := p.do(command{Op: "cpu"})
		if err != nil {
			return 0, err
		}
		total += a.CPU
	}
	return total, nil
}

func (c *cluster) close() {
	for _, p := range c.nodes {
		p.kill()
	}
	if c.dir != "" {
		_ = os.RemoveAll(c.dir)
	}
}

// load measures a load on the leader, and the processor time of all nodes for it.
func (c *cluster) load(l command) (map[string]float64, error) {
	before, err := c.cpu()
	if err != nil {
		return nil, err
	}
	a, err := c.leader.do(l)
	if err != nil {
		return nil, err
	}
	after, err := c.cpu()
	if err != nil || a.Ops == 0 {
		return nil, fmt.Errorf("%s: no operation was completed: %w", c.kind, err)
	}
	return map[string]float64{"ops_per_s": float64(a.Ops) / a.Took.Seconds(), "p50_us": a.P50, "p99_us": a.P99,
		"cpu_us_per_op": float64((after - before).Microseconds()) / float64(a.Ops)}, nil
}

func measureAll() error {
	if *place == "" {
		d, err := os.MkdirTemp("", "ringside-replica-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(d)
		*place = d
	} else if err := os.MkdirAll(*place, 0o700); err != nil {
		return err
	}
	r := newResults()
	wanted := strings.Split(*what, ",")
	for range *pairs {
		if slices.Contains(wanted, "many") {
			for _, kind := range []string{kindReplica, kindLog, kindStatements} {
				if err := r.commits(kind, *many); err != nil {
					return err
				}
			}
		}
		if slices.Contains(wanted, "one") {
			for _, kind := range []string{kindReplica, kindEmpty} {
				if err := r.commits(kind, 1); err != nil {
					return err
				}
			}
		}
		for _, b := range []struct {
			name    string
			measure func() error
		}{{"reads", r.reads}, {"failover", r.failover}, {"catchup", r.catchUp}, {"idle", r.idle}} {
			if slices.Contains(wanted, b.name) {
				if err := b.measure(); err != nil {
					return err
				}
			}
		}
	}
	return r.write()
}

func (r *results) commits(kind string, databases int) error {
	c, err := open(kind)
	if err != nil {
		return err
	}
	defer c.close()
	if _, err := c.leader.do(command{Op: "prepare", Databases: databases}); err != nil {
		return err
	}
	if _, err := c.load(command{Op: "commit", Workers: databases, For: *duration / 4}); err != nil {
		return err
	}
	m, err := c.load(command{Op: "commit", Workers: databases, For: *duration})
	if err != nil {
		return err
	}
	r.add("commit", params{"databases": databases, "connections": databases}, kind, m)
	return nil
}

func (r *results) reads() error {
	c, err := open(kindReplica)
	if err != nil {
		return err
	}
	defer c.close()
	if _, err := c.leader.do(command{Op: "prepare", Databases: 1}); err != nil {
		return err
	}
	for _, b := range []struct{ engine, op string }{{kindReplica, "read"}, {"local", "local"}} {
		if _, err := c.load(command{Op: b.op, Workers: 64, For: *duration / 4}); err != nil {
			return err
		}
		m, err := c.load(command{Op: b.op, Workers: 64, For: *duration})
		if err != nil {
			return err
		}
		r.add("read", params{"databases": 1, "connections": 64}, b.engine, m)
	}
	return nil
}

// failover kills the leader beside a writer on each of the others. They commit through
// Node.Do. It measures the time to their first commit that began after the kill.
func (r *results) failover() error {
	c, err := open(kindReplica)
	if err != nil {
		return err
	}
	defer c.close()
	if _, err := c.leader.do(command{Op: "prepare", Databases: 1}); err != nil {
		return err
	}
	if _, err := c.load(command{Op: "commit", Workers: 1, For: *duration / 4}); err != nil {
		return err
	}
	c.leader.kill()
	killed := time.Now()
	c.nodes = slices.DeleteFunc(c.nodes, func(p *process) bool { return p == c.leader })
	first := make(chan answer, len(c.nodes))
	for _, p := range c.nodes {
		go func() {
			a, err := p.do(command{Op: "first"})
			if err != nil {
				a.Error = err.Error()
			}
			first <- a
		}()
	}
	best := math.Inf(1)
	for range c.nodes {
		a := <-first
		if a.Error != "" {
			return fmt.Errorf("failover: %s", a.Error)
		}
		best = min(best, float64(time.Unix(0, a.At).Sub(killed).Microseconds())/1000)
	}
	r.add("failover", params{"election_ms": 1000}, kindReplica, map[string]float64{"failover_ms": best})
	return nil
}

// catchUp kills a follower, lets it miss commits, and starts it again while the writers go on.
func (r *results) catchUp() error {
	c, err := open(kindReplica)
	if err != nil {
		return err
	}
	defer c.close()
	if _, err := c.leader.do(command{Op: "prepare", Databases: *many}); err != nil {
		return err
	}
	i := slices.IndexFunc(c.nodes, func(p *process) bool { return p != c.leader })
	id := c.nodes[i].id
	c.nodes[i].kill()
	c.nodes = slices.Delete(c.nodes, i, i+1)
	before, err := c.load(command{Op: "commit", Workers: *many, Ops: *away})
	if err != nil {
		return err
	}
	writers := make(chan error, 1)
	var during answer
	go func() {
		var err error
		during, err = c.leader.do(command{Op: "commit", Workers: *many, For: time.Hour})
		writers <- err
	}()
	at, err := c.leader.do(command{Op: "applied"})
	if err != nil {
		return err
	}
	begin := time.Now()
	p, err := start(kindReplica, id, c.dir, c.peers)
	if err != nil {
		return err
	}
	c.nodes = append(c.nodes, p)
	var reached, level time.Duration // the entries of the kill; all but the newest
	for level == 0 {
		a, err := p.do(command{Op: "applied"})
		if err != nil {
			return err
		}
		l, err := c.leader.do(command{Op: "applied"})
		if err != nil {
			return err
		}
		if reached == 0 && a.Index >= at.Index {
			reached = time.Since(begin)
		}
		if reached > 0 && a.Index+64 >= l.Index && !a.Yes {
			level = time.Since(begin)
		}
		if time.Since(begin) > 10*time.Minute {
			return fmt.Errorf("catch-up: entry %d of %d after 10 minutes", a.Index, l.Index)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if _, err := c.leader.do(command{Op: "stop"}); err != nil {
		return err
	}
	if err := <-writers; err != nil {
		return err
	}
	r.add("catchup", params{"databases": *many, "commits": *away}, kindReplica, map[string]float64{
		"ops_per_s":            float64(*away) / reached.Seconds(), // missed commits
		"reached_s":            reached.Seconds(),
		"level_s":              level.Seconds(),
		"writers_before_per_s": before["ops_per_s"],
		"writers_during_per_s": float64(during.Ops) / during.Took.Seconds(),
	})
	return nil
}

// level waits until all nodes have applied what the leader has.
func (c *cluster) level() error {
	for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		l, err := c.leader.do(command{Op: "applied"})
		if err != nil {
			return err
		}
		behind := false
		for _, p := range c.nodes {
			a, err := p.do(command{Op: "applied"})
			if err != nil {
				return err
			}
			behind = behind || a.Index < l.Index || a.Yes
		}
		if !behind {
			return nil
		}
	}
	return fmt.Errorf("%s: the nodes did not reach one entry in 10 minutes", c.kind)
}

// idle measures the processor time of a cluster with many databases and no load.
func (r *results) idle() error {
	c, err := open(kindReplica)
	if err != nil {
		return err
	}
	defer c.close()
	begin := time.Now()
	if _, err := c.leader.do(command{Op: "create", Databases: *idle}); err != nil {
		return err
	}
	created := time.Since(begin)
	if err := c.level(); err != nil {
		return err
	}
	// So many entries cause a snapshot, within 40 s.
	time.Sleep(max(*duration, time.Minute))
	before, err := c.cpu()
	if err != nil {
		return err
	}
	begin = time.Now()
	time.Sleep(max(3**duration, 30*time.Second))
	after, err := c.cpu()
	if err != nil {
		return err
	}
	r.add("idle", params{"databases": *idle}, kindReplica, map[string]float64{
		"idle_cpu_us_per_s": float64((after - before).Microseconds()) / time.Since(begin).Seconds(),
		"creates_per_s":     float64(*idle) / created.Seconds(),
	})
	return nil
}

type params map[string]any

// results are a result file, with the fields of ringside bench.
type results struct {
	Schema  int            `json:"schema"`
	Host    map[string]any `json:"host"`
	Results []*result      `json:"results"`
	Ratios  []ratio        `json:"ratios"`
	Notes   []string       `json:"notes,omitempty"`
}

type result struct {
	Suite    string               `json:"suite"`
	Workload string               `json:"workload"`
	Params   params               `json:"params"`
	Engine   string               `json:"engine"`
	Metrics  map[string]summary   `json:"metrics"`
	Samples  map[string][]float64 `json:"samples"`
}

type summary struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

type ratio struct {
	Suite    string `json:"suite"`
	Workload string `json:"workload"`
	Params   params `json:"params"`
	Engine   string `json:"engine"`
	Against  string `json:"against"`
	Metric   string `json:"metric"`
	summary
}

func newResults() *results {
	first := func(file, key string) string {
		p, _ := os.ReadFile(file)
		for line := range strings.Lines(string(p)) {
			if value, ok := strings.CutPrefix(line, key); ok {
				return strings.TrimSpace(strings.TrimLeft(value, "\t :"))
			}
		}
		return ""
	}
	h := map[string]any{
		"time": time.Now().UTC().Format(time.RFC3339), "os": runtime.GOOS, "arch": runtime.GOARCH,
		"kernel": first("/proc/sys/kernel/osrelease", ""), "cpu": first("/proc/cpuinfo", "model name"),
		"cores": runtime.NumCPU(), "gomaxprocs": runtime.GOMAXPROCS(0), "go": runtime.Version(), "ringside": cli.Own().Version, "commit": cli.Own().Commit,
		"verified": true, "seed": 0, "pairs": *pairs, "duration_ms": float64(duration.Milliseconds()),
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		peers := []string{}
		for _, d := range info.Deps {
			if strings.HasPrefix(d.Path, "github.com/hashicorp/raft") || d.Path == "github.com/ncruces/go-sqlite3" {
				peers = append(peers, d.Path+" "+d.Version)
			}
		}
		h["peers"] = peers
	}
	return &results{Schema: 3, Host: h, Notes: []string{
		"three nodes are three processes on one machine and one disk; cpu_us_per_op is of all processes of a system",
	}}
}

// add records a sample and prints it.
func (r *results) add(workload string, p params, engine string, values map[string]float64) {
	i := slices.IndexFunc(r.Results, func(o *result) bool {
		return o.Workload == workload && o.Engine == engine && maps.Equal(o.Params, p)
	})
	if i < 0 {
		i = len(r.Results)
		r.Results = append(r.Results, &result{"replica", workload, p, engine, make(map[string]summary), make(map[string][]float64)})
	}
	line := fmt.Sprintf("%-9s %-18s", workload, engine)
	for _, k := range slices.Sorted(maps.Keys(values)) {
		r.Results[i].Samples[k] = append(r.Results[i].Samples[k], values[k])
		line += fmt.Sprintf("  %s %.4g", k, values[k])
	}
	fmt.Println(line, p)
}

func summarize(values []float64) summary {
	s := slices.Sorted(slices.Values(values))
	return summary{(s[(len(s)-1)/2] + s[len(s)/2]) / 2, s[0], s[len(s)-1]}
}

func (r *results) write() error {
	for _, o := range r.Results {
		for k, values := range o.Samples {
			o.Metrics[k] = summarize(values)
		}
		for _, a := range r.Results {
			if o.Engine != kindReplica || a == o || a.Workload != o.Workload || !maps.Equal(a.Params, o.Params) {
				continue
			}
			for _, k := range []string{"ops_per_s", "cpu_us_per_op", "p50_us", "p99_us"} {
				var values []float64
				for i, v := range o.Samples[k] {
					values = append(values, v/a.Samples[k][i])
				}
				s := summarize(values)
				fmt.Printf("%s %v: %s of %s, times that of %s: %.2f (%.2f to %.2f)\n", o.Workload, o.Params, k, o.Engine, a.Engine, s.Median, s.Min, s.Max)
				r.Ratios = append(r.Ratios, ratio{"replica", o.Workload, o.Params, o.Engine, a.Engine, k, s})
			}
		}
	}
	if *out == "" {
		return nil
	}
	p, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(*out, append(p, '\n'), 0o644)
}

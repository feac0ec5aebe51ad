// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	raftwal "github.com/hashicorp/raft-wal"
	"github.com/ncruces/go-sqlite3/driver"

	"github.com/ringside-io/ringside/replica"
	_ "github.com/ringside-io/ringside/sqlitevfs"
)

// command is a line on the standard input of a node, answer one on its standard output.
// Commands run concurrently.
type command struct {
	ID    int
	Op    string
	Node  string
	Dir   string
	Peers map[string]string

	Databases, Workers, Ops int
	For                     time.Duration
}

type answer struct {
	ID       int
	Error    string
	Yes      bool
	Ops      int
	Took     time.Duration
	P50, P99 float64 // microseconds
	CPU      time.Duration
	Index    uint64
	At       int64 // Unix time in nanoseconds
}

// system is what a node measures. Its methods return an error for what its kind lacks.
type system interface {
	leads() bool
	prepare(databases int) error
	commit(db int) error
}

// node serves commands.
type node struct {
	kind    string
	s       system
	stopped atomic.Bool
}

func serve(kind string) error {
	n := &node{kind: kind}
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	var mu sync.Mutex
	for {
		var c command
		if err := in.Decode(&c); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		go func() {
			a, err := n.carryOut(c)
			a.ID = c.ID
			if err != nil {
				a.Error = err.Error()
			}
			mu.Lock()
			defer mu.Unlock()
			_ = out.Encode(a) // the parent has ended, and so will this process
		}()
	}
}

func (n *node) carryOut(c command) (a answer, err error) {
	switch c.Op {
	case "open":
		switch n.kind {
		case kindReplica:
			n.s, err = openReplica(c)
		case kindLog:
			n.s, err = &single{dir: c.Dir}, os.MkdirAll(c.Dir, 0o700)
		case kindStatements:
			n.s, err = openStatements(c)
		case kindEmpty:
			n.s, err = openEmpty(c)
		default:
			err = fmt.Errorf("unknown kind %q", n.kind)
		}
		return a, err
	case "leads":
		a.Yes = n.s.leads()
		return a, nil
	case "cpu":
		var r syscall.Rusage
		err = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
		a.CPU = time.Duration(r.Utime.Nano() + r.Stime.Nano())
		return a, err
	case "prepare":
		return a, n.s.prepare(c.Databases)
	case "stop":
		n.stopped.Store(true)
		return a, nil
	case "commit":
		return n.load(c, n.s.commit)
	}
	s, ok := n.s.(*ours)
	if !ok {
		return a, errors.ErrUnsupported
	}
	switch c.Op {
	case "read":
		return n.load(c, func(int) error { return s.read(s.reader) })
	case "local":
		return n.load(c, func(int) error { return s.read(s.local) })
	case "applied":
		status := s.Status()
		a.Index, a.Yes = status.Applied, len(status.Broken) > 0
		return a, nil
	case "first":
		err := s.Do(context.Background(), "0.db", func(tx *sql.Tx) error {
			_, err := tx.Exec("INSERT INTO t(v) VALUES('after the failure')")
			return err
		})
		if errors.Is(err, replica.ErrUncertain) { // for a benchmark it does not matter if it is there twice
			return n.carryOut(c)
		}
		a.At = time.Now().UnixNano()
		return a, err
	case "create":
		var next atomic.Int64
		failed := make(chan error, 64)
		for range 64 {
			go func() {
				for i := next.Add(1); i <= int64(c.Databases); i = next.Add(1) {
					if err := s.Create(context.Background(), fmt.Sprintf("idle/%d.db", i), replica.CreateOptions{}); err != nil {
						failed <- err
						return
					}
				}
				failed <- nil
			}()
		}
		for range 64 {
			err = errors.Join(err, <-failed)
		}
		return a, err
	}
	return a, fmt.Errorf("unknown command %q", c.Op)
}

// load runs workers until a time or a number of operations is reached, or the command stop.
func (n *node) load(c command, do func(i int) error) (a answer, err error) {
	n.stopped.Store(false)
	var mu sync.Mutex
	var wg sync.WaitGroup
	var begun atomic.Int64
	var times []time.Duration
	begin := time.Now()
	for i := range c.Workers {
		wg.Go(func() {
			var own []time.Duration
			for !n.stopped.Load() && (c.Ops > 0 && begun.Add(1) <= int64(c.Ops) || c.Ops == 0 && time.Since(begin) < c.For) {
				t := time.Now()
				if e := do(i); e != nil {
					n.stopped.Store(true)
					mu.Lock()
					err = e
					mu.Unlock()
					return
				}
				own = append(own, time.Since(t))
			}
			mu.Lock()
			times = append(times, own...)
			mu.Unlock()
		})
	}
	wg.Wait()
	a.Took, a.Ops = time.Since(begin), len(times)
	if slices.Sort(times); len(times) > 0 {
		a.P50 = float64(times[len(times)/2].Nanoseconds()) / 1000
		a.P99 = float64(times[len(times)*99/100].Nanoseconds()) / 1000
	}
	return a, err
}

const (
	createTable = "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v TEXT)"
	insertRow   = "INSERT INTO t(v) VALUES('a small row')"
)

// tables are databases with a prepared statement each.
type tables struct{ inserts []*sql.Stmt }

func (t *tables) add(db *sql.DB) error {
	if _, err := db.Exec(createTable); err != nil {
		return err
	}
	s, err := db.Prepare(insertRow)
	t.inserts = append(t.inserts, s)
	return err
}

func (t *tables) commit(i int) error {
	_, err := t.inserts[i].Exec()
	return err
}

// ours is a node of replica.
type ours struct {
	*replica.Node
	tables
	reader, local *sql.Stmt
}

func openReplica(c command) (*ours, error) {
	n, err := replica.Open(replica.Options{ID: c.Node, Dir: c.Dir, Listen: c.Peers[c.Node], Peers: c.Peers,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))})
	return &ours{Node: n}, err
}

func (s *ours) leads() bool { return s.Status().Leads }

func (s *ours) prepare(databases int) error {
	for i := range databases {
		db, err := s.Open(fmt.Sprintf("%d.db", i))
		if err == nil {
			db.SetMaxIdleConns(64)
			err = s.add(db)
		}
		if err == nil && i == 0 {
			if _, err = db.Exec(insertRow); err == nil {
				s.reader, err = db.Prepare("SELECT v FROM t WHERE id=1")
			}
		}
		if err != nil {
			return err
		}
	}
	local, err := s.Open("0.db", replica.Stale(-1))
	if err == nil {
		local.SetMaxIdleConns(64)
		s.local, err = local.Prepare("SELECT v FROM t WHERE id=1")
	}
	return err
}

func (s *ours) read(stmt *sql.Stmt) error {
	var v string
	return stmt.QueryRow().Scan(&v)
}

// single is one node without replication, whose databases share a log.
type single struct {
	dir string
	tables
}

func (s *single) leads() bool { return true }

func (s *single) prepare(databases int) error {
	for i := range databases {
		db, err := driver.Open("file:" + filepath.Join(s.dir, fmt.Sprintf("%d.db", i)) +
			"?vfs=ringside-log&_pragma=busy_timeout(60000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)")
		if err == nil {
			err = s.add(db)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// theirs is a node of raft over package net.
type theirs struct{ raft *raft.Raft }

func openTheirs(c command, machine raft.FSM, store interface {
	raft.LogStore
	raft.StableStore
}) (*theirs, error) {
	t, err := raft.NewTCPTransport(c.Peers[c.Node], nil, 4, 10*time.Second, io.Discard)
	if err != nil {
		return nil, err
	}
	var members raft.Configuration
	for id, address := range c.Peers {
		members.Servers = append(members.Servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(address)})
	}
	slices.SortFunc(members.Servers, func(a, b raft.Server) int { return strings.Compare(string(a.ID), string(b.ID)) })
	o := raft.DefaultConfig()
	o.LocalID, o.Logger = raft.ServerID(c.Node), hclog.NewNullLogger()
	snapshots := raft.NewInmemSnapshotStore()
	if err := raft.BootstrapCluster(o, store, store, snapshots, t, members); err != nil {
		return nil, err
	}
	r, err := raft.NewRaft(o, machine, store, store, snapshots, t)
	return &theirs{r}, err
}

func (s *theirs) leads() bool { return s.raft.State() == raft.Leader }

func (s *theirs) prepare(int) error { return s.raft.Barrier(0).Error() }

func (s *theirs) commit(i int) error {
	f := s.raft.Apply(fmt.Appendf(nil, "%d %s", i, insertRow), 0)
	if err := f.Error(); err != nil {
		return err
	}
	err, _ := f.Response().(error)
	return err
}

// statements applies each entry as a statement, as in systems that replicate statements. The
// databases need not be synced, because raft's log has the entries.
type statements struct {
	noSnapshots
	dir string
	dbs map[int]*sql.DB
}

func (m *statements) Apply(l *raft.Log) any {
	number, query, _ := strings.Cut(string(l.Data), " ")
	i, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	db := m.dbs[i]
	if db == nil {
		db, err = driver.Open("file:" + filepath.Join(m.dir, number+".db") + "?_pragma=journal_mode(wal)&_pragma=synchronous(off)")
		if err == nil {
			db.SetMaxOpenConns(1)
			_, err = db.Exec(createTable)
		}
		if err != nil {
			return err
		}
		m.dbs[i] = db
	}
	if _, err := db.Exec(query); err != nil {
		return err
	}
	return nil
}

type noSnapshots struct{}

func (noSnapshots) Snapshot() (raft.FSMSnapshot, error) { return nil, raft.ErrNothingNewToSnapshot }
func (noSnapshots) Restore(io.ReadCloser) error         { return nil }

func openStatements(c command) (system, error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	store, err := raftboltdb.NewBoltStore(filepath.Join(c.Dir, "raft.db"))
	if err != nil {
		return nil, err
	}
	return openTheirs(c, &statements{dir: c.Dir, dbs: make(map[int]*sql.DB)}, store)
}

// empty is a state machine that does nothing.
type empty struct{ noSnapshots }

func (empty) Apply(*raft.Log) any { return nil }

func openEmpty(c command) (system, error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	store, err := raftwal.Open(c.Dir, raftwal.WithLogger(hclog.NewNullLogger()))
	if err != nil {
		return nil, err
	}
	return openTheirs(c, empty{}, store)
}

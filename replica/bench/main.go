// SPDX-License-Identifier: MIT

// Bench measures three nodes of replica in one process, each with its own directory. It
// compares them with alternatives to their parts: raft with raft-wal and an empty state
// machine, and one raft entry per transaction over raft-boltdb and package net, applied to
// SQLite on each node. It prints JSON.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	raftwal "github.com/hashicorp/raft-wal"
	"github.com/ncruces/go-sqlite3/driver"

	"github.com/ringside-io/ringside/replica"
)

var (
	duration = flag.Duration("duration", 3*time.Second, "of each measurement")
	rounds   = flag.Int("rounds", 3, "how often each is made, in turn")
	many     = flag.Int("databases", 64, "in the measurement with many")
	dir      = flag.String("dir", "", "where the nodes are; empty: a temporary directory")
)

// sample is a measurement.
type sample struct {
	What  string  `json:"what"`
	Round int     `json:"round"`
	Rate  float64 `json:"rate"` // per second
	P50   float64 `json:"p50"`  // microseconds
	P99   float64 `json:"p99"`
}

func main() {
	flag.Parse()
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

// system commits a small row in one of many databases, and may read.
type system interface {
	commit(db int) error
	close() error
}

func run() error {
	if *dir == "" {
		d, err := os.MkdirTemp("", "ringside-replica-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(d)
		*dir = d
	}
	out := json.NewEncoder(os.Stdout)
	for round := range *rounds {
		for _, b := range []struct {
			what    string
			open    func(dir string) (system, error)
			writers int
		}{
			{"replica, many databases", openReplica, *many},
			{"an entry per transaction, boltdb and net, many databases", openBaseline, *many},
			{"replica, one writer", openReplica, 1},
			{"raft-wal and an empty state machine, one writer", openEmpty, 1},
		} {
			place := filepath.Join(*dir, fmt.Sprint(time.Now().UnixNano()))
			s, err := b.open(place)
			if err != nil {
				return fmt.Errorf("%s: %w", b.what, err)
			}
			rate, times, err := measure(b.writers, s.commit)
			if err == nil {
				err = out.Encode(sample{b.what, round, rate, quantile(times, 50), quantile(times, 99)})
			}
			if r, ok := s.(*ours); ok && err == nil && b.writers > 1 {
				err = r.reads(out, round)
			}
			if err = errors.Join(err, s.close(), os.RemoveAll(place)); err != nil {
				return fmt.Errorf("%s: %w", b.what, err)
			}
		}
	}
	return nil
}

func measure(workers int, do func(i int) error) (rate float64, times []time.Duration, err error) {
	for i := range workers { // work that is done only once
		if err := do(i); err != nil {
			return 0, nil, err
		}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var total atomic.Int64
	begin := time.Now()
	for i := range workers {
		wg.Go(func() {
			var own []time.Duration
			for time.Since(begin) < *duration {
				t := time.Now()
				if e := do(i); e != nil {
					mu.Lock()
					err = e
					mu.Unlock()
					return
				}
				own = append(own, time.Since(t))
			}
			total.Add(int64(len(own)))
			mu.Lock()
			times = append(times, own...)
			mu.Unlock()
		})
	}
	wg.Wait()
	return float64(total.Load()) / time.Since(begin).Seconds(), times, err
}

func quantile(times []time.Duration, q int) float64 {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return float64(times[len(times)*q/100].Nanoseconds()) / 1000
}

func addresses() (map[string]string, error) {
	peers := make(map[string]string)
	for _, id := range []string{"a", "b", "c"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		peers[id] = l.Addr().String()
		if err := l.Close(); err != nil {
			return nil, err
		}
	}
	return peers, nil
}

// ours are three nodes of replica.
type ours struct {
	nodes  []*replica.Node
	leader *replica.Node
	dbs    []*sql.DB
}

func openReplica(dir string) (system, error) {
	peers, err := addresses()
	if err != nil {
		return nil, err
	}
	s := new(ours)
	for id, a := range peers {
		n, err := replica.Open(replica.Options{ID: id, Dir: filepath.Join(dir, id), Listen: a, Peers: peers,
			Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))})
		if err != nil {
			return nil, err
		}
		s.nodes = append(s.nodes, n)
	}
	for s.leader == nil {
		time.Sleep(10 * time.Millisecond)
		for _, n := range s.nodes {
			if n.Status().Leads {
				s.leader = n
			}
		}
	}
	for i := range *many {
		db, err := s.leader.Open(fmt.Sprintf("%d.db", i))
		if err == nil {
			db.SetMaxIdleConns(64)
			_, err = db.Exec("CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
		}
		if err != nil {
			return nil, err
		}
		s.dbs = append(s.dbs, db)
	}
	return s, nil
}

func (s *ours) commit(i int) error {
	_, err := s.dbs[i].Exec("INSERT INTO t(v) VALUES('a small row')")
	return err
}

// reads measures linearizable reads on the leader and reads of the same files without a
// check, of 64 readers in one database.
func (s *ours) reads(out *json.Encoder, round int) error {
	local, err := s.leader.Open("0.db", replica.Stale(-1))
	if err != nil {
		return err
	}
	defer local.Close()
	local.SetMaxIdleConns(64)
	for _, b := range []struct {
		what string
		db   *sql.DB
	}{{"linearizable reads, 64 readers", s.dbs[0]}, {"local reads, 64 readers", local}} {
		rate, times, err := measure(64, func(int) error {
			var v string
			return b.db.QueryRow("SELECT v FROM t WHERE id=1").Scan(&v)
		})
		if err == nil {
			err = out.Encode(sample{b.what, round, rate, quantile(times, 50), quantile(times, 99)})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *ours) close() error {
	var errs []error
	for _, db := range s.dbs {
		errs = append(errs, db.Close())
	}
	for _, n := range s.nodes {
		errs = append(errs, n.Close())
	}
	return errors.Join(errs...)
}

// theirs are three nodes of raft over package net.
type theirs struct {
	rafts   []*raft.Raft
	leader  *raft.Raft
	closers []io.Closer
}

type stores interface {
	raft.LogStore
	raft.StableStore
	io.Closer
}

func openTheirs(dir string, store func(dir string) (stores, error), machine func(dir string) (raft.FSM, io.Closer, error)) (*theirs, error) {
	s := new(theirs)
	var members raft.Configuration
	var transports []*raft.NetworkTransport
	for i := range 3 {
		t, err := raft.NewTCPTransport("127.0.0.1:0", nil, 4, 10*time.Second, io.Discard)
		if err != nil {
			return nil, err
		}
		transports = append(transports, t)
		members.Servers = append(members.Servers, raft.Server{ID: raft.ServerID(fmt.Sprint(i)), Address: t.LocalAddr()})
	}
	for i := range 3 {
		place := filepath.Join(dir, fmt.Sprint(i))
		if err := os.MkdirAll(place, 0o700); err != nil {
			return nil, err
		}
		st, err := store(place)
		if err != nil {
			return nil, err
		}
		fsm, closer, err := machine(place)
		if err != nil {
			return nil, err
		}
		c := raft.DefaultConfig()
		c.LocalID, c.Logger = members.Servers[i].ID, hclog.NewNullLogger()
		snapshots := raft.NewInmemSnapshotStore()
		if err := raft.BootstrapCluster(c, st, st, snapshots, transports[i], members); err != nil {
			return nil, err
		}
		r, err := raft.NewRaft(c, fsm, st, st, snapshots, transports[i])
		if err != nil {
			return nil, err
		}
		s.rafts = append(s.rafts, r)
		s.closers = append(s.closers, transports[i], st, closer)
	}
	for s.leader == nil {
		time.Sleep(10 * time.Millisecond)
		for _, r := range s.rafts {
			if r.State() == raft.Leader {
				s.leader = r
			}
		}
	}
	return s, s.leader.Barrier(0).Error()
}

func (s *theirs) commit(i int) error {
	f := s.leader.Apply(fmt.Appendf(nil, "%d INSERT INTO t(v) VALUES('a small row')", i), 0)
	if err := f.Error(); err != nil {
		return err
	}
	if err, ok := f.Response().(error); ok {
		return err
	}
	return nil
}

func (s *theirs) close() error {
	var errs []error
	for _, r := range s.rafts {
		errs = append(errs, r.Shutdown().Error())
	}
	for _, c := range s.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// statements applies each entry as a statement, as in systems that replicate statements. The
// database need not be synced, because raft's log has the entry.
type statements struct{ dbs []*sql.DB }

func (m *statements) Apply(l *raft.Log) any {
	var i int
	if _, err := fmt.Sscan(string(l.Data), &i); err != nil {
		return err
	}
	_, query, _ := cutSpace(string(l.Data))
	_, err := m.dbs[i].ExecContext(context.Background(), query)
	if err != nil {
		return err
	}
	return nil
}

func cutSpace(s string) (before, after string, ok bool) {
	for i := range s {
		if s[i] == ' ' {
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

func (m *statements) Snapshot() (raft.FSMSnapshot, error) { return nil, raft.ErrNothingNewToSnapshot }
func (m *statements) Restore(io.ReadCloser) error         { return nil }

func (m *statements) Close() error {
	var errs []error
	for _, db := range m.dbs {
		errs = append(errs, db.Close())
	}
	return errors.Join(errs...)
}

func openBaseline(dir string) (system, error) {
	return openTheirs(dir, func(dir string) (stores, error) {
		return raftboltdb.NewBoltStore(filepath.Join(dir, "raft.db"))
	}, func(dir string) (raft.FSM, io.Closer, error) {
		m := new(statements)
		for i := range *many {
			db, err := driver.Open("file:" + filepath.Join(dir, fmt.Sprintf("%d.db", i)) + "?_pragma=journal_mode(wal)&_pragma=synchronous(off)")
			if err == nil {
				db.SetMaxOpenConns(1)
				_, err = db.Exec("CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
			}
			if err != nil {
				return nil, nil, err
			}
			m.dbs = append(m.dbs, db)
		}
		return m, m, nil
	})
}

type empty struct{}

func (empty) Apply(*raft.Log) any                 { return nil }
func (empty) Snapshot() (raft.FSMSnapshot, error) { return nil, raft.ErrNothingNewToSnapshot }
func (empty) Restore(io.ReadCloser) error         { return nil }
func (empty) Close() error                        { return nil }

func openEmpty(dir string) (system, error) {
	return openTheirs(dir, func(dir string) (stores, error) {
		return raftwal.Open(dir, raftwal.WithLogger(hclog.NewNullLogger()))
	}, func(string) (raft.FSM, io.Closer, error) { return empty{}, empty{}, nil })
}

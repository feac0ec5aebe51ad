// SPDX-License-Identifier: MIT

package sockets

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/ringside-io/ringside/unet"
)

// layer is the transport between raft peers.
type layer struct {
	net.Listener
	s *unet.System
}

func (l layer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	d := unet.Dialer{System: l.s, Timeout: timeout}
	return d.Dial("tcp", string(address))
}

// journal is a state machine that records the applied entries.
type journal struct {
	mu      sync.Mutex
	applied []string
}

func (j *journal) Apply(l *raft.Log) any {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.applied = append(j.applied, string(l.Data))
	return nil
}

func (j *journal) entries() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.applied)
}

// has reports whether there are n distinct entries.
func (j *journal) has(n int) bool {
	all := j.entries()
	slices.Sort(all)
	return len(slices.Compact(all)) == n
}

func (j *journal) Snapshot() (raft.FSMSnapshot, error) { return nil, io.ErrUnexpectedEOF }
func (j *journal) Restore(io.ReadCloser) error         { return io.ErrUnexpectedEOF }

// TestRaft replicates a log over three nodes, stops the leader, and continues.
// Promise: unet/net-s-results
func TestRaft(t *testing.T) {
	eachMode(t, func(t *testing.T, s *unet.System) {
		const nodes = 3
		var rafts []*raft.Raft
		var journals []*journal
		var servers []raft.Server
		var transports []*raft.NetworkTransport
		for i := range nodes {
			transport := raft.NewNetworkTransport(layer{listen(t, s), s}, 3, 10*time.Second, io.Discard)
			transports = append(transports, transport)
			servers = append(servers, raft.Server{ID: raft.ServerID(fmt.Sprint(i)), Address: transport.LocalAddr()})
		}
		for i := range nodes {
			config := raft.DefaultConfig()
			config.LocalID, config.Logger = servers[i].ID, hclog.NewNullLogger()
			store, fsm := raft.NewInmemStore(), &journal{}
			r, err := raft.NewRaft(config, fsm, store, store, raft.NewInmemSnapshotStore(), transports[i])
			if err != nil {
				t.Fatal(err)
			}
			rafts, journals = append(rafts, r), append(journals, fsm)
		}
		defer func() {
			for i, r := range rafts {
				if err := r.Shutdown().Error(); err != nil {
					t.Error(err)
				}
				_ = transports[i].Close()
			}
		}()
		if err := rafts[0].BootstrapCluster(raft.Configuration{Servers: servers}).Error(); err != nil {
			t.Fatal(err)
		}
		apply(t, rafts, "before", 50)
		first := leader(t, rafts)
		if err := rafts[first].Shutdown().Error(); err != nil {
			t.Fatal(err)
		}
		_ = transports[first].Close()
		apply(t, rafts, "after", 50)
		journals = slices.Delete(journals, first, first+1)
		until(t, "both survivors have the whole log", func() bool {
			return journals[0].has(100) && journals[1].has(100)
		})
		until(t, "both survivors have the same log", func() bool {
			return slices.Equal(journals[0].entries(), journals[1].entries())
		})
	})
}

func leader(t *testing.T, rafts []*raft.Raft) (index int) {
	t.Helper()
	until(t, "a leader", func() bool {
		for i, r := range rafts {
			if r.State() == raft.Leader {
				index = i
				return true
			}
		}
		return false
	})
	return index
}

// apply adds entries to the log. On a slow machine the leader may change meanwhile. Then apply asks
// the next one, which may get an entry again.
func apply(t *testing.T, rafts []*raft.Raft, what string, n int) {
	t.Helper()
	for i := range n {
		var err error
		until(t, "an entry", func() bool {
			err = rafts[leader(t, rafts)].Apply(fmt.Appendf(nil, "%s %d", what, i), patience).Error()
			return !errors.Is(err, raft.ErrNotLeader) && !errors.Is(err, raft.ErrLeadershipLost)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// until polls, because raft does not report when it is done.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not after %v", what, patience)
		}
	}
}

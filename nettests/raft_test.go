// SPDX-License-Identifier: MIT

package nettests

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/ringside-io/ringside/unet"
)

// layer is how raft reaches its peers.
type layer struct {
	net.Listener
	s *unet.System
}

func (l layer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	d := unet.Dialer{System: l.s, Dialer: net.Dialer{Timeout: timeout}}
	return d.Dial("tcp", string(address))
}

// journal is a state machine that remembers what was applied.
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

func (j *journal) len() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.applied)
}

func (j *journal) Snapshot() (raft.FSMSnapshot, error) { return nil, io.ErrUnexpectedEOF }
func (j *journal) Restore(io.ReadCloser) error         { return io.ErrUnexpectedEOF }

// TestRaft replicates a log over three nodes, loses the leader, and goes on.
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
		first := leader(t, rafts)
		apply(t, rafts[first], 50)
		if err := rafts[first].Shutdown().Error(); err != nil {
			t.Fatal(err)
		}
		_ = transports[first].Close()
		second := leader(t, rafts)
		apply(t, rafts[second], 50)
		until(t, "both survivors have the whole log", func() bool {
			for i, j := range journals {
				if i != first && j.len() != 100 {
					return false
				}
			}
			return true
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

func apply(t *testing.T, r *raft.Raft, n int) {
	t.Helper()
	for i := range n {
		if err := r.Apply(fmt.Appendf(nil, "entry %d", i), 10*time.Second).Error(); err != nil {
			t.Fatal(err)
		}
	}
}

// until polls: raft tells nobody when it has got there.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not after 30 s", what)
		}
	}
}

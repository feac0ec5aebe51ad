// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	raftwal "github.com/hashicorp/raft-wal"
	raftbench "github.com/hashicorp/raft/bench"

	"github.com/ringside-io/ringside/replica/internal/raftlog"
)

// store is the interface that raft's benchmarks need.
type store interface {
	raft.LogStore
	raft.StableStore
}

// BenchmarkStores runs raft's own benchmarks on this store, raft-wal and raft-boltdb.
func BenchmarkStores(b *testing.B) {
	stores := []struct {
		name string
		open func(b *testing.B) store
	}{
		{"raftlog", func(b *testing.B) store {
			s, err := raftlog.Open(b.TempDir(), raftlog.Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { s.Close() })
			return s
		}},
		{"raft-wal", func(b *testing.B) store {
			s, err := raftwal.Open(b.TempDir(), raftwal.WithLogger(hclog.NewNullLogger()))
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { s.Close() })
			return s
		}},
		{"raft-boltdb", func(b *testing.B) store {
			s, err := raftboltdb.NewBoltStore(filepath.Join(b.TempDir(), "db"))
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { s.Close() })
			return s
		}},
	}
	logs := func(f func(*testing.B, raft.LogStore)) func(*testing.B, store) {
		return func(b *testing.B, s store) { f(b, s) }
	}
	settings := func(f func(*testing.B, raft.StableStore)) func(*testing.B, store) {
		return func(b *testing.B, s store) { f(b, s) }
	}
	for _, bench := range []struct {
		name string
		run  func(*testing.B, store)
	}{
		{"FirstIndex", logs(raftbench.FirstIndex)}, {"LastIndex", logs(raftbench.LastIndex)},
		{"GetLog", logs(raftbench.GetLog)}, {"StoreLog", logs(raftbench.StoreLog)},
		{"Set", settings(raftbench.Set)}, {"Get", settings(raftbench.Get)},
		{"SetUint64", settings(raftbench.SetUint64)}, {"GetUint64", settings(raftbench.GetUint64)},
		{"Store1", func(b *testing.B, s store) { storeMany(b, s, 1, 256) }},
		{"Store64", func(b *testing.B, s store) { storeMany(b, s, 64, 256) }},
		{"Store1x64KiB", func(b *testing.B, s store) { storeMany(b, s, 1, 64<<10) }},
	} {
		for _, st := range stores {
			if bench.name == "StoreLog" && st.name == "raft-wal" {
				continue // the log begins at entry 0, which raft-wal refuses
			}
			b.Run(bench.name+"/"+st.name, func(b *testing.B) { bench.run(b, st.open(b)) })
		}
	}
}

// storeMany stores as a leader does: calls of several entries, one after the other.
func storeMany(b *testing.B, s store, n, size int) {
	next := uint64(1)
	data := bytes.Repeat([]byte("ringside"), size/8)
	b.SetBytes(int64(n * size))
	for b.Loop() {
		logs := make([]*raft.Log, n)
		for i := range logs {
			logs[i] = &raft.Log{Index: next, Term: 1, Type: raft.LogCommand, Data: data}
			next++
		}
		if err := s.StoreLogs(logs); err != nil {
			b.Fatal(err)
		}
	}
}

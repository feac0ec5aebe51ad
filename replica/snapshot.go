// SPDX-License-Identifier: MIT

package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/trace"
	"slices"
	"strings"

	"github.com/hashicorp/raft"
)

// manifest is the content of a snapshot. The pages are in the databases' files.
type manifest struct {
	Version   int             `json:"version"`
	Cluster   uint64          `json:"cluster"`
	Index     uint64          `json:"index"` // of the last entry that was applied
	Databases []databaseState `json:"databases"`

	Directories directories `json:"directories"`
}

type databaseState struct {
	ID       uint64   `json:"id"`
	Name     string   `json:"name"`
	PageSize uint32   `json:"pageSize"`
	Position Position `json:"position"`
}

// Snapshot returns an error while a database is not complete on this node, or that is not known: raft would
// drop log entries that are needed to complete it.
func (f fsm) Snapshot() (raft.FSMSnapshot, error) {
	if f.progress.halted {
		return nil, net.ErrClosed
	}
	f.catalog.flush() // Persist syncs the files
	m := manifest{Version: 1, Index: f.progress.applied.Load()}
	f.membership.mu.RLock()
	m.Cluster, m.Directories = f.membership.cluster, f.membership.dirs
	f.membership.mu.RUnlock()
	f.catalog.mu.RLock()
	defer f.catalog.mu.RUnlock()
	for _, db := range f.catalog.dbs {
		db.mu.Lock()
		state, broken := databaseState{db.id, db.name, db.pageSize, db.pos}, db.broken
		if broken == nil && db.unsure && db.ahead {
			broken = errRecovering // or the file is older than the last snapshot, see settle
		}
		db.mu.Unlock()
		if broken != nil {
			return nil, fmt.Errorf("replica: no snapshot while %s is not whole: %w", db.name, broken)
		}
		m.Databases = append(m.Databases, state)
	}
	slices.SortFunc(m.Databases, func(a, b databaseState) int { return strings.Compare(a.Name, b.Name) })
	return &snapshot{f.Node, m, f.membership.received.Load()}, nil
}

type snapshot struct {
	n        *Node
	m        manifest
	received uint64 // the node's count when it was taken
}

// Persist makes changes since the last snapshot durable, and writes the manifest.
func (s *snapshot) Persist(sink raft.SnapshotSink) error {
	if s.n.opts.Trace {
		defer trace.StartRegion(context.Background(), "replica.snapshot").End()
	}
	if sink, ok := sink.(*snapshotSink); ok {
		sink.own = true
	}
	err := s.n.catalog.sync()
	if err == nil {
		err = json.NewEncoder(sink).Encode(s.m)
	}
	if err != nil {
		return errors.Join(err, sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return err
	}
	if s.n.membership.received.Load() != s.received {
		return nil // the files of another node's snapshot are fetched meanwhile
	}
	return s.n.membership.setFetching(false)
}

func (s *snapshot) Release() {}

// Restore reads a manifest: at the start that of this node, later that of the leader, whose
// databases are fetched before Restore returns, see fetchAll.
func (f fsm) Restore(r io.ReadCloser) error {
	defer r.Close()
	var m manifest
	if err := json.NewDecoder(r).Decode(&m); err != nil {
		return fmt.Errorf("replica: the snapshot's manifest: %w", err)
	}
	if m.Version != 1 {
		return fmt.Errorf("replica: the snapshot's manifest has version %d", m.Version)
	}
	return f.restore(m)
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
		s.node.membership.received.Add(1)
		if err := s.node.membership.setFetching(true); err != nil {
			return errors.Join(err, s.Cancel())
		}
	}
	return s.SnapshotSink.Close()
}

// restore takes over the list of databases from a snapshot.
func (f fsm) restore(m manifest) error {
	if f.membership.cluster != 0 && m.Cluster != 0 && f.membership.cluster != m.Cluster && !f.membership.recovering {
		return fmt.Errorf("replica: the snapshot is from cluster %x, and this node belongs to %x", m.Cluster, f.membership.cluster)
	}
	if m.Cluster != 0 {
		if err := f.membership.join(m.Cluster); err != nil {
			return err
		}
	}
	if err := f.membership.adopt(m.Directories); err != nil {
		return err
	}
	f.membership.mu.RLock()
	running, interrupted := f.role.running.Load(), f.membership.fetching
	f.membership.mu.RUnlock()
	if running {
		if err := f.membership.setFetching(true); err != nil {
			return err
		}
	}
	dbs, names := make(map[uint64]*database), make(map[string]*database)
	for _, s := range m.Databases {
		if err := checkName(s.Name); err != nil {
			return err
		}
		db := f.catalog.byID(s.ID)
		if db == nil || !db.resume(s) {
			db = f.catalog.newDatabase(s.ID, s.Name, s.PageSize, s.Position)
			db.missed, db.unsure = running, !running && interrupted
			db.dirty.Store(true) // the file may have unsynced writes of an earlier process
		}
		dbs[s.ID], names[s.Name] = db, db
	}
	f.catalog.mu.Lock()
	old := f.catalog.names
	f.catalog.dbs, f.catalog.names, f.catalog.folders = dbs, names, make(map[string]int)
	for name := range names {
		f.catalog.countFolders(name, 1)
	}
	f.catalog.mu.Unlock()
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
			f.openFiles.remove(db)
			f.sessions.evict(db)
		} else if err := db.remove(); err != nil {
			return err
		}
	}
	f.progress.applied.Store(m.Index)
	if running {
		whole, err := f.repairs.fetchAll(names, m.Index)
		if err != nil {
			return err
		}
		// raft removes the entries by which a file could be repaired after a power cut
		if err := f.catalog.sync(); err != nil {
			return err
		}
		if whole { // otherwise the next snapshot of this node does it, which is not taken before it has the files
			if err := f.membership.setFetching(false); err != nil {
				return err
			}
		}
		f.catalog.sweep()
	}
	f.progress.advance(m.Index)
	return nil
}

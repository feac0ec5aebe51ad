// SPDX-License-Identifier: MIT

package replica

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// membership is this node's identity and what it knows of the members' directories. It is stored in node.json.
type membership struct {
	id, dir, data string // of Options, and the directory of the databases
	disk          *disk
	log           *slog.Logger
	store         *notedLog
	mark          *logMark      // how far raft's log has come
	directory     uint64        // identifies this node's directory; random, chosen when it was empty
	unknown       chan struct{} // a member may have no entry in dirs
	warned        sync.Map      // directories that were reported
	received      atomic.Uint64 // snapshots of other nodes
	recovering    bool          // for Recover

	mu      sync.RWMutex
	cluster uint64
	dirs    directories
	absent  map[string]uint64 // per member: index of the last configuration without it
	adopted uint64            // the configuration of the last snapshot
	// As in identity.
	fetching, sealed, moving bool
	renewed                  uint64
}

func (ms *membership) open(n *Node, data string) {
	ms.id, ms.dir, ms.data, ms.disk, ms.log = n.opts.ID, n.opts.Dir, data, &n.opts.disk, n.log
	ms.unknown = make(chan struct{}, 1)
}

// identity is stored in node.json, so that another node does not use the directory by mistake.
//
// The number of the directory is also stored in each part that the node cannot do without: in raft's
// log, as a setting, and in data/. So a part of another directory, or a log that was lost, is
// recognized. log.mark tells how far raft's log has come, so an older copy of it is recognized too.
type identity struct {
	ID          string      `json:"id"`
	Cluster     uint64      `json:"cluster"`
	Directory   uint64      `json:"directory"`
	Directories directories `json:"directories"`
	Fetching    bool        `json:"fetching,omitempty"` // the files of a snapshot are being fetched
	Sealed      bool        `json:"sealed,omitempty"`   // raft's log and data/ have the number
	Moving      bool        `json:"moving,omitempty"`   // Recover has begun and not ended
	Renewed     uint64      `json:"renewed,omitempty"`  // the cluster that Recover makes
}

// The names of what tells the parts of a directory apart.
const (
	identityFile = "node.json"
	markFile     = "log.mark"
	sealFile     = ".ringside-replica" // in data/; no database has this name
	sealKey      = "Directory"         // setting of raft's log
)

const rejoin = "put back what belongs here, or remove this member on the leader, empty the directory and add it again as a new member"

func (ms *membership) path() string { return filepath.Join(ms.dir, identityFile) }

func (ms *membership) load() error {
	p, err := os.ReadFile(ms.path())
	if errors.Is(err, os.ErrNotExist) {
		ms.directory = rand.Uint64() | 1
		return nil // seal saves it
	}
	var id identity
	if err == nil {
		err = json.Unmarshal(p, &id)
	}
	if err != nil {
		return fmt.Errorf("replica: %s: %w", ms.path(), err)
	}
	if id.ID != ms.id {
		return fmt.Errorf("replica: %s belongs to node %q, and Options.ID is %q", ms.dir, id.ID, ms.id)
	}
	ms.cluster, ms.dirs, ms.directory, ms.fetching, ms.sealed = id.Cluster, id.Directories, id.Directory, id.Fetching, id.Sealed
	ms.moving, ms.renewed = id.Moving, id.Renewed
	if ms.directory == 0 { // of an earlier version
		ms.directory = rand.Uint64() | 1
		return ms.save()
	}
	return nil
}

// save writes the identity. mu is locked, or the node is not open yet.
func (ms *membership) save() error {
	p, err := json.Marshal(identity{ms.id, ms.cluster, ms.directory, ms.dirs, ms.fetching, ms.sealed, ms.moving, ms.renewed})
	if err != nil {
		return err
	}
	return ms.disk.writeFile(ms.path(), p)
}

// directories has the directory of each member, as raft's log has recorded it. A member that
// was opened with another directory has forgotten what it acknowledged and for which candidate
// it voted. Elections without it could lose commits, so candidates do not count its vote, and it
// does not count votes for itself, until it was removed and added.
//
// The file node.json has them too: after a restart a node votes before it knows what is
// committed.
type directories struct {
	Place   uint64                     `json:"place"`  // of the last change in raft's log: index<<12 and operation
	Config  uint64                     `json:"config"` // index of the last change of the members
	Members map[string]memberDirectory `json:"members,omitempty"`
}

type memberDirectory struct {
	Directory uint64 `json:"directory"`
	Place     uint64 `json:"place"`
}

// setFetching records whether the files of a snapshot are being fetched. If the process ends
// meanwhile, the files may be old when it starts again, and that is no damage.
func (ms *membership) setFetching(on bool) error {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if ms.fetching == on {
		return nil
	}
	ms.fetching = on
	return ms.save()
}

// join records the identity of the cluster. The first one in raft's log counts.
func (ms *membership) join(cluster uint64) error {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if ms.cluster != 0 {
		return nil
	}
	ms.cluster = cluster
	return ms.save()
}

// record records the directory of a member, if there was no change of the members since
// the leader saw it.
func (ms *membership) record(place, config, directory uint64, id string) error {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	d := &ms.dirs
	if _, ok := d.Members[id]; ok || place <= d.Place || config < d.Config {
		return nil
	}
	members := map[string]memberDirectory{id: {directory, place}}
	maps.Copy(members, d.Members)
	d.Place, d.Members = place, members
	return ms.save()
}

// configured forgets the directories of members that were removed.
func (ms *membership) configured(index uint64, c raft.Configuration) error {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	d := &ms.dirs
	if index<<12 <= d.Place {
		return nil
	}
	members, without := make(map[string]memberDirectory), make(map[string]uint64)
	for _, m := range c.Servers {
		if known, ok := d.Members[string(m.ID)]; ok {
			members[string(m.ID)] = known
		}
		config, ok := ms.absent[string(m.ID)]
		if !ok {
			config = d.Config
		}
		without[string(m.ID)] = config
	}
	ms.absent = without
	*d = directories{index << 12, index, members}
	ms.look()
	return ms.save()
}

// adopt takes over the directories of a snapshot, unless this node has newer ones.
func (ms *membership) adopt(d directories) error {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if d.Place <= ms.dirs.Place {
		return nil
	}
	ms.dirs, ms.adopted = d, d.Config
	return ms.save()
}

// look starts a round of recordMembers.
func (ms *membership) look() {
	select {
	case ms.unknown <- struct{}{}:
	default:
	}
}

// replaced reports that a member has another directory than the recorded one.
func (ms *membership) replaced(id string, directory uint64) error {
	err := fmt.Errorf("replica: member %q was opened with another directory than the one that the cluster has recorded, and has forgotten what it acknowledged: its vote does not count until it is removed and added again", id)
	if _, known := ms.warned.LoadOrStore([2]any{id, directory}, true); !known {
		ms.log.Error(err.Error())
	}
	return err
}

// recorded returns the directory of a member that raft's log has recorded, the zero value without one.
func (ms *membership) recorded(id string) memberDirectory {
	ms.mu.RLock()
	defer ms.mu.RUnlock()
	return ms.dirs.Members[id]
}

// recognize returns an error if a member has another directory than the recorded one, and was not
// removed since: it has forgotten what it acknowledged and for whom it voted.
func (ms *membership) recognize(id string, directory uint64) error {
	known := ms.recorded(id)
	if known.Directory == 0 || known.Directory == directory || ms.removed(id, known.Place>>12) {
		return nil
	}
	return ms.replaced(id, directory)
}

// removed reports whether raft's log has a configuration without a member after an index. This
// node may not know yet that it is committed. It is, if a later configuration has the
// member again; if none has, raft asks the member for no vote.
func (ms *membership) removed(id string, after uint64) bool {
	first, err := ms.store.FirstIndex()
	if err != nil || first == 0 {
		return false
	}
	last, err := ms.store.LastIndex()
	for i := max(first, after+1); err == nil && i <= last; i++ {
		var l raft.Log
		if err = ms.store.GetLog(i, &l); err != nil || l.Type != raft.LogConfiguration {
			continue
		}
		members := raft.DecodeConfiguration(l.Data).Servers
		if !slices.ContainsFunc(members, func(m raft.Server) bool { return string(m.ID) == id }) {
			return true
		}
	}
	return false
}

// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"weak"
)

// counters are the running counts of a database.
type counters struct {
	syncs, shared, syncfs, dirSyncs, logged   atomic.Uint64
	misses, fetched, hits, late, waste, scans atomic.Uint64
}

// Stats are the counters of one database since it was opened by its first connection in this
// process, or the sums of the counters of several databases.
type Stats struct {
	VFS  string `json:"vfs,omitempty"`  // the name of the VFS
	Path string `json:"path,omitempty"` // the path of the database
	// Prefetch, GroupSync and GroupLog describe the state of each part. A part that is off
	// has "off", or "off: " and the reason.
	Prefetch  string `json:"prefetch,omitempty"`
	GroupSync string `json:"groupSync,omitempty"`
	GroupLog  string `json:"groupLog,omitempty"`

	Syncs       uint64 `json:"syncs"`       // syncs of files that SQLite requested
	SharedSyncs uint64 `json:"sharedSyncs"` // of Syncs: shared with other databases by a syncfs
	Logged      uint64 `json:"logged"`      // of Syncs: served by the log of the databases
	SyncFS      uint64 `json:"syncFS"`      // calls of syncfs, by connections of this database
	DirSyncs    uint64 `json:"dirSyncs"`    // syncs of directories
	Misses      uint64 `json:"misses"`      // page reads that had to wait for the disk
	Scans       uint64 `json:"scans"`       // scans that were recognised and whose leaves were fetched
	Fetched     uint64 `json:"fetched"`     // prefetched pages
	Hits        uint64 `json:"hits"`        // of Fetched: in the page cache when they were read
	Late        uint64 `json:"late"`        // of Fetched: read while they were still being fetched
	Waste       uint64 `json:"waste"`       // of Fetched: not read before the connection began another scan or was closed
}

// String returns s as JSON.
func (s Stats) String() string {
	p, err := json.Marshal(s)
	if err != nil {
		return "{}"
	}
	return string(p)
}

// Plus returns the sums of the counters of s and t, and the texts of s.
func (s Stats) Plus(t Stats) Stats {
	s.Syncs += t.Syncs
	s.SharedSyncs += t.SharedSyncs
	s.Logged += t.Logged
	s.SyncFS += t.SyncFS
	s.DirSyncs += t.DirSyncs
	s.Misses += t.Misses
	s.Scans += t.Scans
	s.Fetched += t.Fetched
	s.Hits += t.Hits
	s.Late += t.Late
	s.Waste += t.Waste
	return s
}

func (d *database) stats() Stats {
	return Stats{
		VFS: d.vfs.name, Path: d.path,
		Prefetch: d.prefetchState(), GroupSync: d.groupState(), GroupLog: d.commits.state(),
		Syncs: d.syncs.Load(), SharedSyncs: d.shared.Load(), Logged: d.logged.Load(), SyncFS: d.syncfs.Load(), DirSyncs: d.dirSyncs.Load(),
		Misses: d.misses.Load(), Scans: d.scans.Load(), Fetched: d.fetched.Load(),
		Hits: d.hits.Load(), Late: d.late.Load(), Waste: d.waste.Load(),
	}
}

// registry lists the VFSes for Databases and Total, as long as they are in use.
type registry struct {
	mu  sync.Mutex
	all []weak.Pointer[ringVFS]
}

var known registry

func (r *registry) add(v *ringVFS) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = slices.DeleteFunc(r.all, func(p weak.Pointer[ringVFS]) bool { return p.Value() == nil })
	r.all = append(r.all, weak.Make(v))
}

func (r *registry) each(fn func(*ringVFS)) {
	r.mu.Lock()
	all := slices.Clone(r.all)
	r.mu.Unlock()
	for _, p := range all {
		if v := p.Value(); v != nil {
			fn(v)
		}
	}
}

// snapshot returns the open databases, and the sum for closed ones. Stats of a database may wait for its log, so
// they are read without the mutex.
func (d *databases) snapshot() (open []*database, done Stats) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Values(d.open)), d.done
}

// Databases returns the Stats of every database that this process has open through a VFS
// of this package, sorted by path. It may be called concurrently.
func Databases() []Stats {
	var all []Stats
	known.each(func(v *ringVFS) {
		dbs, _ := v.dbs.snapshot()
		for _, db := range dbs {
			all = append(all, db.stats())
		}
	})
	slices.SortFunc(all, func(a, b Stats) int {
		if c := strings.Compare(a.Path, b.Path); c != 0 {
			return c
		}
		return strings.Compare(a.VFS, b.VFS)
	})
	return all
}

// Total returns the sum of the Stats of all databases, including closed ones. A VFS that
// Register has replaced is left out at some time after its last database is closed. Total
// may be called concurrently.
func Total() Stats {
	var sum Stats
	known.each(func(v *ringVFS) {
		dbs, done := v.dbs.snapshot()
		sum = sum.Plus(done)
		for _, db := range dbs {
			sum = sum.Plus(db.stats())
		}
	})
	return sum
}

// Vars implements expvar.Var: expvar.Publish("sqlite", sqlitevfs.Vars{}) publishes Total
// and Databases.
type Vars struct{}

// String returns Total and Databases as JSON.
func (Vars) String() string {
	p, err := json.Marshal(struct {
		Total     Stats   `json:"total"`
		Databases []Stats `json:"databases"`
	}{Total(), Databases()})
	if err != nil {
		return "{}"
	}
	return string(p)
}

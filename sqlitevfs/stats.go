// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"encoding/json"
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

// Stats are counts of one database, or of several, since it was opened.
type Stats struct {
	VFS  string `json:"vfs,omitempty"`
	Path string `json:"path,omitempty"`
	// Prefetch, GroupSync and GroupLog describe the state of the parts, or the reason
	// why they are off.
	Prefetch  string `json:"prefetch,omitempty"`
	GroupSync string `json:"groupSync,omitempty"`
	GroupLog  string `json:"groupLog,omitempty"`

	Syncs       uint64 `json:"syncs"`       // syncs of files that SQLite asked for
	SharedSyncs uint64 `json:"sharedSyncs"` // those shared with other databases by a syncfs
	Logged      uint64 `json:"logged"`      // those done by the log of the databases
	SyncFS      uint64 `json:"syncFS"`      // calls of syncfs, by connections of this database
	DirSyncs    uint64 `json:"dirSyncs"`    // syncs of directories
	Misses      uint64 `json:"misses"`      // page reads that had to wait for the disk
	Scans       uint64 `json:"scans"`       // times that a scan was recognised and its leaves fetched
	Fetched     uint64 `json:"fetched"`     // prefetched pages
	Hits        uint64 `json:"hits"`        // those read while in the page cache
	Late        uint64 `json:"late"`        // those read while still being fetched
	Waste       uint64 `json:"waste"`       // those not read before the connection began another scan or was closed
}

// String returns the counts as JSON.
func (s Stats) String() string {
	p, err := json.Marshal(s)
	if err != nil {
		return "{}"
	}
	return string(p)
}

// Plus returns the sum of two sets of counters, with the names of s.
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

// registry remembers the VFSes for their counts, as long as they are in use.
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

// Databases returns the counts of every database that is open through a VFS of
// this package, sorted by path.
func Databases() []Stats {
	var all []Stats
	known.each(func(v *ringVFS) {
		v.dbs.mu.Lock()
		defer v.dbs.mu.Unlock()
		for _, db := range v.dbs.open {
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

// Total returns the counts of all databases together, those that were closed
// included.
func Total() Stats {
	var sum Stats
	known.each(func(v *ringVFS) {
		v.dbs.mu.Lock()
		defer v.dbs.mu.Unlock()
		sum = sum.Plus(v.dbs.done)
		for _, db := range v.dbs.open {
			sum = sum.Plus(db.stats())
		}
	})
	return sum
}

// Vars shows the counts where an expvar.Var is expected:
// expvar.Publish("sqlite", sqlitevfs.Vars{}).
type Vars struct{}

// String returns the total, and each open database, as JSON.
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

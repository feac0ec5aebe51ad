// SPDX-License-Identifier: MIT

package sqlitevfs

import "sync"

// groups are the groups of this process: databases of every VFS of this package
// share them.
var groups struct {
	mu  sync.Mutex
	all map[groupKey]*group
}

// groupKey says who chooses together. Syncs of a WAL, which is appended to, and
// those of a rollback journal gain differently by sharing.
type groupKey struct {
	device uint64
	how    sharing // other file systems get the number of one that was unmounted
	wal    bool
	forced bool
}

// groupOf returns the group of the file system that a file lies on, nil where
// there is none. how is what sharingOf returned.
func groupOf(fd int, how sharing, wal, forced bool) *group {
	dev, ok := device(fd)
	if !ok || how == noSharing {
		return nil
	}
	key := groupKey{dev, how, wal, forced}
	groups.mu.Lock()
	defer groups.mu.Unlock()
	g := groups.all[key]
	if g == nil {
		g = newGroup()
		g.forced, g.flush = forced, how == bySyncFSAndFlush
		if groups.all == nil {
			groups.all = make(map[groupKey]*group)
		}
		groups.all[key] = g
	}
	return g
}

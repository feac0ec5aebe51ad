// SPDX-License-Identifier: MIT

package sqlitevfs

import "sync"

// groups are the groups of this process, by device: databases of every VFS of
// this package share them.
var groups struct {
	mu  sync.Mutex
	all map[uint64]*group
}

// groupOf returns the group of the file system that a file lies on, nil where
// there is none.
func groupOf(fd int) *group {
	dev, ok := device(fd)
	if !ok {
		return nil
	}
	groups.mu.Lock()
	defer groups.mu.Unlock()
	g := groups.all[dev]
	if g == nil {
		g = newGroup()
		if groups.all == nil {
			groups.all = make(map[uint64]*group)
		}
		groups.all[dev] = g
	}
	return g
}

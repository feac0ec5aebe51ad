// SPDX-License-Identifier: MIT

package replica

import (
	"slices"
	"sync"
)

// changes are which pages the newest transactions of all databases changed. Each member has them, so that a new leader
// can continue a backup without a snapshot.
type changes struct {
	mu      sync.Mutex
	queue   []*change // the oldest first
	dbs     map[uint64][]*change
	numbers int                 // of pages in queue
	names   map[string]struct{} // of databases that changed since the last call of Feed.Changed; nil without a Feed
	more    chan struct{}       // closed when names has one; nil if none waits
}

// change is a transaction of a database.
type change struct {
	db       uint64
	from, at uint64 // index of the entry that made the state before, and that after
	pages    uint32 // of the database after it
	pgnos    []uint32
}

// Limits of changes: they take at most 2 MiB.
const (
	mostChanges = 1 << 14
	mostNumbers = 1 << 18
)

// add notes a transaction, which is not changed later.
func (c *changes) add(name string, n *change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dbs == nil {
		c.dbs = make(map[uint64][]*change)
	}
	c.queue, c.dbs[n.db] = append(c.queue, n), append(c.dbs[n.db], n)
	c.numbers += len(n.pgnos)
	for len(c.queue) > mostChanges || c.numbers > mostNumbers {
		old := c.queue[0]
		c.queue[0] = nil
		c.queue = c.queue[1:]
		c.numbers -= len(old.pgnos)
		if list := c.dbs[old.db]; len(list) > 1 {
			list[0] = nil
			c.dbs[old.db] = list[1:]
		} else {
			delete(c.dbs, old.db)
		}
	}
	c.tell(name)
}

// named notes that a database was created, deleted or replaced.
func (c *changes) named(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tell(name)
}

// tell notes a name for Feed.Changed. mu is locked.
func (c *changes) tell(name string) {
	if c.names == nil {
		return
	}
	c.names[name] = struct{}{}
	if c.more != nil {
		close(c.more)
		c.more = nil
	}
}

// taken returns the names since the last call, and a channel that is closed when there are others.
func (c *changes) taken() (names []string, more <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.names {
		names = append(names, name)
	}
	c.names = make(map[string]struct{})
	if c.more == nil {
		c.more = make(chan struct{})
	}
	return names, c.more
}

// between returns the pages that may differ between the states of a database that two entries made, sorted; nil if that is not known.
func (c *changes) between(db, from, to uint64) []uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if from == to {
		return []uint32{}
	}
	list := c.dbs[db]
	begin := slices.IndexFunc(list, func(n *change) bool { return n.at > from })
	if begin < 0 || list[begin].from > from {
		return nil
	}
	set := make(map[uint32]struct{})
	least, at := list[begin].pages, list[begin].from
	for _, n := range list[begin:] {
		if n.from != at {
			return nil // a snapshot lies between
		}
		at, least = n.at, min(least, n.pages)
		for _, pgno := range n.pgnos {
			set[pgno] = struct{}{}
		}
		switch {
		case at < to:
			continue
		case at > to:
			return nil
		}
		for pgno := least + 1; pgno <= n.pages; pgno++ { // a page that is cut off and added again need not be written
			set[pgno] = struct{}{}
		}
		pgnos := make([]uint32, 0, len(set))
		for pgno := range set {
			if pgno <= n.pages {
				pgnos = append(pgnos, pgno)
			}
		}
		slices.Sort(pgnos)
		return pgnos
	}
	return nil
}

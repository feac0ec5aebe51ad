// SPDX-License-Identifier: MIT

package replica

import (
	"math"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringside-io/ringside/replica/internal/raftlog"
)

// holds keeps entries in raft's log that members need next: one that fetches the files of a snapshot, or that
// catches up behind it. If they were cut meanwhile, it would have to fetch all files again, and never catch up
// if more is committed meanwhile than the log keeps.
type holds struct {
	mu   sync.Mutex
	all  map[raft.ServerID]hold
	room func() bool // the disk has room for a longer log
}

type hold struct {
	index   uint64 // of the first entry that is kept
	seen    time.Time
	fetches bool // the member has not answered to the snapshot
}

// holdFor is for how long entries are kept for a member that does not answer.
const holdFor = time.Minute

// begin keeps the entries from index on for a member. The caller calls end when the member has answered.
func (h *holds) begin(id raft.ServerID, index uint64) (end func(has bool)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = make(map[raft.ServerID]hold)
	}
	h.all[id] = hold{index, time.Now(), true}
	return func(has bool) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if old, ok := h.all[id]; ok {
			h.all[id] = hold{old.index, time.Now(), !has}
		}
	}
}

// progress is called when a member has answered, or gets the entries behind an index.
func (h *holds) progress(id raft.ServerID, index uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if old, ok := h.all[id]; ok {
		h.all[id] = hold{max(old.index, index), time.Now(), old.fetches}
	}
}

// first returns the index of the first entry that must be kept.
func (h *holds) first(log *raftlog.Store) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	last, err := log.LastIndex()
	if err != nil {
		return math.MaxUint64
	}
	first := uint64(math.MaxUint64)
	for id, one := range h.all {
		if time.Since(one.seen) > holdFor || !one.fetches && one.index >= last {
			delete(h.all, id) // it is gone, or has all
			continue
		}
		first = min(first, one.index)
	}
	if len(h.all) > 0 && h.room != nil && !h.room() {
		clear(h.all)
		return math.MaxUint64
	}
	return first
}

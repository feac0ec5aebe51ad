// SPDX-License-Identifier: MIT

package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringside-io/ringside/appendlog"
	"github.com/ringside-io/ringside/replica/internal/raftlog"
)

// firstTerm is the stable store of a node that may be new. raft.BootstrapCluster sets the first term,
// then adds the members to the log. A node that was killed between the two is still new: candidates
// ask for votes in the second term or a later one. Without members it would never elect a leader.
type firstTerm struct{ raft.StableStore }

// GetUint64 leaves out the first term.
func (s firstTerm) GetUint64(key []byte) (uint64, error) {
	v, err := s.StableStore.GetUint64(key)
	if string(key) == "CurrentTerm" && v == 1 {
		v = 0
	}
	return v, err
}

// requestBytes is the size from which a request has no further entry.
const requestBytes = 16 << 20

// load reads the data that raftLog has left out of the entries of a request. It leaves entries out of a request
// that is too large: raft limits their number only, and 64 large transactions exceed the memory, or the time that
// a request may take. Raft looks at the entries again after the request and sends those that were left out with
// the next one.
func (l *notedLog) load(args *raft.AppendEntriesRequest) error {
	size := 0
	for i, e := range args.Entries {
		if err := l.fill(e); err != nil {
			return err
		}
		if size += len(e.Data); size > requestBytes && i > 0 {
			e.Data = nil
			args.Entries = args.Entries[:i]
			return nil
		}
	}
	return nil
}

// fill reads the data of an entry that raftLog has left out.
func (l *notedLog) fill(e *raft.Log) error {
	if len(e.Data) > 0 || e.Type != raft.LogCommand {
		return nil
	}
	var full raft.Log
	if err := l.GetLog(e.Index, &full); err != nil {
		return err
	}
	if full.Term != e.Term {
		return fmt.Errorf("replica: entry %d of term %d was replaced", e.Index, e.Term)
	}
	e.Data = full.Data
	return nil
}

// raftLog is the log for raft. It leaves out the data of large entries: raft reads up to 64 entries
// for each follower at once, and puts thousands into the queue of the state machine. It needs their indexes and terms. The
// transport and the state machine read the data when they use them.
type raftLog struct{ *notedLog }

// GetLog implements raft.LogStore.
func (l raftLog) GetLog(index uint64, e *raft.Log) error {
	if l.Head(index, e) && e.Type == raft.LogCommand {
		return nil
	}
	return l.notedLog.GetLog(index, e)
}

// notedLog is raft's log. It counts when entries were stored or committed, and marks how far it has come.
type notedLog struct {
	*raftlog.Store
	mark    *logMark
	fitness watcher // nil in some tests
	holds   holds
	members atomic.Uint64 // no later entry changes the members
	mu      sync.Mutex
	changes uint64
	changed chan struct{} // closed by the next change; nil if no goroutine waits
}

// StoreLog and StoreLogs implement raft.LogStore. Raft sends the entries afterwards.
func (l *notedLog) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

func (l *notedLog) StoreLogs(all []*raft.Log) error {
	defer l.note()
	end := func() {}
	if l.fitness != nil {
		end = l.fitness.begin(true)
	}
	err := l.Store.StoreLogs(all)
	end()
	if err != nil && l.fitness != nil && !errors.Is(err, raftlog.ErrOrder) && !errors.Is(err, appendlog.ErrRecordTooLarge) {
		l.fitness.logFailed(err)
	}
	for _, e := range all {
		if e.Type == raft.LogConfiguration {
			l.members.Store(e.Index)
		}
	}
	if err == nil && len(all) > 0 {
		last := all[len(all)-1]
		_ = l.mark.note(func(s *markState) { s.last, s.lastTerm = last.Index, last.Term }) // it was logged
	}
	return err
}

// DeleteRange implements raft.LogStore.
func (l *notedLog) DeleteRange(low, high uint64) error {
	if last, err := l.LastIndex(); err != nil {
		return err
	} else if last > 0 && high >= last {
		if err := l.mark.setBack(low); err != nil {
			return err
		}
	} else if keep := l.holds.first(l.Store); keep <= high {
		if high = keep - 1; high < low {
			return nil // raft tries again after the next snapshot
		}
	}
	return l.Store.DeleteRange(low, high)
}

// SetUint64 implements raft.StableStore.
func (l *notedLog) SetUint64(key []byte, v uint64) error {
	err := l.Store.SetUint64(key, v)
	// A store that was stopped returns nil and stores nothing.
	if now, _ := l.GetUint64(key); err == nil && now == v && string(key) == "CurrentTerm" {
		_ = l.mark.note(func(s *markState) { s.term = v })
	}
	return err
}

// note counts a change.
func (l *notedLog) note() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes++
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// await waits until the number of changes is not seen, for at most a time. It returns the number.
func (l *notedLog) await(seen uint64, most time.Duration, closing <-chan struct{}) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changes != seen {
		return l.changes
	}
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	changed := l.changed
	l.mu.Unlock()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-closing:
	}
	l.mu.Lock()
	return l.changes
}

// transactions returns the transactions of a database before seq that raft's log has up to the index
// last. db.mu is locked.
func (nl *notedLog) transactions(db *database, last, seq uint64) ([]*txn, error) {
	first, err := nl.FirstIndex()
	if err != nil || first == 0 {
		return nil, err
	}
	var list []*txn
	for i := first; i <= last; i++ {
		var l raft.Log
		if err := nl.GetLog(i, &l); err != nil {
			return nil, err
		}
		for data := l.Data; l.Type == raft.LogCommand && len(data) > 0; {
			o, tail, err := nextOp(data)
			if err != nil {
				return nil, err
			}
			data = tail
			if o.kind != opTxn || len(o.rest) < 8 || binary.LittleEndian.Uint64(o.rest) != db.id {
				continue
			}
			t, err := decodeTxn(o.rest)
			if err != nil {
				return nil, err
			}
			// The first of several with the same number counts, see apply.
			if k := len(list); (k == 0 || t.seq > list[k-1].seq) && t.seq < seq {
				list = append(list, t)
			}
		}
	}
	return list, nil
}

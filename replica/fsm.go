// SPDX-License-Identifier: MIT

package replica

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"runtime/trace"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// fsm is the node as raft's state machine.
type fsm struct{ *Node }

var _ raft.BatchingFSM = fsm{}

func (f fsm) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

// job is a transaction to be applied.
type job struct {
	at   Position
	id   proposalID
	t    *txn
	mine *proposal // nil if it is not from this node, or its writer has given up
}

// ApplyBatch applies entries. It applies the transactions of each database in order, and those
// of different databases concurrently.
func (f fsm) ApplyBatch(logs []*raft.Log) []any {
	if f.opts.Trace {
		defer trace.StartRegion(context.Background(), "replica.apply").End()
	}
	if f.progress.halted {
		return make([]any, len(logs))
	}
	f.store.note()
	now := time.Now()
	f.proposer.moved.Store(&now)
	f.progress.began.Store(logs[len(logs)-1].Index) // before the first commit is acknowledged
	jobs := make(map[*database][]job)
	size := 0 // of the entries in jobs
	flush := func() {
		f.run(jobs)
		clear(jobs)
		size = 0
	}
	for _, l := range logs {
		if l.Type == raft.LogConfiguration {
			if err := f.membership.configured(l.Index, raft.DecodeConfiguration(l.Data)); err != nil {
				f.log.Warn("replica: the directories of the members cannot be stored", "error", err)
			}
		}
		if l.Type != raft.LogCommand || f.opts.bug != nil && f.role.leading.Load() == nil && f.opts.bug.skips(l.Index) {
			continue
		}
		data, err := f.content(l)
		if err != nil {
			f.progress.halted = true
			return make([]any, len(logs))
		}
		if size += len(data); size > requestBytes {
			flush()
			size = len(data)
		}
		for n := uint64(0); len(data) > 0; n++ {
			o, tail, err := nextOp(data)
			if err != nil {
				// All nodes have the same entry, so none can continue.
				panic(fmt.Sprintf("%v: index %d", err, l.Index))
			}
			data = tail
			at := Position{Term: l.Term, Index: l.Index}
			mine := f.proposer.claim(o.id)
			switch o.kind {
			case opTxn:
				t, err := decodeTxn(o.rest)
				if err != nil {
					panic(fmt.Sprintf("%v: index %d", err, l.Index))
				}
				db := f.catalog.byID(t.db)
				if db == nil {
					mine.finish(errDeleted)
					continue
				}
				jobs[db] = append(jobs[db], job{at, o.id, t, mine})
			default:
				flush()
				mine.finish(f.carryOut(o, at, n))
			}
		}
	}
	flush()
	f.progress.advance(logs[len(logs)-1].Index)
	if !f.catalog.swept && f.progress.recovered.Load() {
		f.catalog.swept = true
		f.catalog.sweep()
	}
	return make([]any, len(logs))
}

// content returns the data of an entry, which raftLog may have left out. The log cannot be read while its disk
// is full, so content tries again until the node is closed.
func (f fsm) content(l *raft.Log) ([]byte, error) {
	e := raft.Log{Index: l.Index, Term: l.Term, Type: l.Type, Data: l.Data} // raft keeps l
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := f.store.fill(&e)
		switch {
		case err == nil:
			return e.Data, nil
		case errors.Is(err, raft.ErrLogNotFound):
			panic(fmt.Sprintf("replica: entry %d, which is committed: %v", l.Index, err)) // as raft does
		}
		select {
		case <-time.After(wait):
		case <-f.life.closing.Done():
			return nil, err
		}
	}
}

func (f fsm) run(jobs map[*database][]job) {
	if len(jobs) == 1 {
		for db, list := range jobs {
			db.apply(list)
		}
		return
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for db, list := range jobs {
		if db.light(list) {
			db.apply(list)
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			db.apply(list)
			<-slots
		})
	}
	wg.Wait()
}

// carryOut executes an operation on the list of databases.
func (f fsm) carryOut(o op, at Position, n uint64) error {
	switch o.kind {
	case opCluster:
		if len(o.rest) != 8 {
			return errEntry
		}
		return f.membership.join(binary.LittleEndian.Uint64(o.rest))
	case opMember:
		if len(o.rest) < 16 {
			return errEntry
		}
		return f.membership.record(at.Index<<12|n+1, binary.LittleEndian.Uint64(o.rest), binary.LittleEndian.Uint64(o.rest[8:]), string(o.rest[16:]))
	case opCreate:
		if len(o.rest) < 8 {
			return errEntry
		}
		size, length := binary.LittleEndian.Uint32(o.rest), uint64(binary.LittleEndian.Uint32(o.rest[4:]))
		rest := o.rest[8:]
		if length > uint64(len(rest)) || size == 0 || (uint64(len(rest))-length)%uint64(size) != 0 {
			return errEntry
		}
		return f.catalog.created(at, at.Index<<12|n, string(rest[:length]), size, rest[length:])
	case opPart:
		return f.catalog.addPart(o.rest)
	case opSum:
		return f.checks.compute(o.rest)
	case opWhole:
		return f.catalog.joinParts(at, at.Index<<12|n, o.rest)
	case opDelete:
		if len(o.rest) != 8 {
			return errEntry
		}
		return f.catalog.deleted(binary.LittleEndian.Uint64(o.rest))
	}
	// A node of a later version carries it out, and this one would then differ.
	panic(fmt.Sprintf("%v: index %d, operation %q", errEntry, at.Index, o.kind))
}

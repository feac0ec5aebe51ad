// SPDX-License-Identifier: MIT

package replica

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// Verify compares the pages of a database on all members in the state that one entry of raft's log has made: when a
// member applies the entry, it begins to read its own file in that state, whatever is written meanwhile.

// checks are the checksums that this node computes, or has computed lately.
type checks struct {
	node *Node

	mu  sync.Mutex
	all map[proposalID]*sumCheck
}

type sumCheck struct {
	begun atomic.Bool   // the state machine has come to it
	done  chan struct{} // closed when the fields below are set
	pos   Position
	sum   uint64
	err   error
}

// keptChecks is for how long a result can be asked for.
const keptChecks = 15 * time.Minute

// get returns a check. The state machine or the caller that asks for the result may be first.
func (c *checks) get(id proposalID) *sumCheck {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.all[id]; s != nil {
		return s
	}
	if c.all == nil {
		c.all = make(map[proposalID]*sumCheck)
	}
	s := &sumCheck{done: make(chan struct{})}
	c.all[id] = s
	time.AfterFunc(keptChecks, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.all, id)
	})
	return s
}

// answer waits for a result for a short time.
func (c *checks) answer(id proposalID, closing <-chan struct{}) (a answer) {
	s := c.get(id)
	select {
	case <-s.done:
	case <-closing:
		return answer{Pending: true}
	case <-time.After(2 * time.Second):
		return answer{Pending: true, Begun: s.begun.Load()}
	}
	a.Position, a.Sum = s.pos, s.sum
	if s.err != nil {
		a.Error = s.err.Error()
	}
	return a
}

// begin makes the entry at which all members compute the checksum of a database. This node leads.
func (ck *checks) begin(ctx context.Context, database uint64) (id proposalID, index uint64, err error) {
	id = proposalID{rand.Uint64(), rand.Uint64()}
	rest := binary.LittleEndian.AppendUint64(nil, id[0])
	rest = binary.LittleEndian.AppendUint64(rest, id[1])
	if err := ck.node.role.writable(); err != nil {
		return id, 0, err
	}
	err = ck.node.proposer.commit(ctx, opSum, binary.LittleEndian.AppendUint64(rest, database))
	return id, ck.node.progress.newest(), err
}

// compute is the operation that raft's log brings. It returns when the state is fixed, and the pages are
// read afterwards.
func (ck *checks) compute(rest []byte) error {
	if len(rest) != 24 {
		return errEntry
	}
	s := ck.get(proposalID{binary.LittleEndian.Uint64(rest), binary.LittleEndian.Uint64(rest[8:])})
	if s.begun.Swap(true) {
		return nil // the entry is applied again
	}
	id := binary.LittleEndian.Uint64(rest[16:])
	f, m, pos, err := ck.stateOf(id)
	if s.pos = pos; err != nil {
		s.err = err
		close(s.done)
		return nil
	}
	ck.node.life.over.Go(func() {
		defer close(s.done)
		_, s.sum, s.err = m.sums()
		if s.err == nil && s.sum != pos.Sum {
			ck.node.repairs.differs(id, s.sum, pos)
		}
		s.err = errors.Join(s.err, m.done(), f.close())
	})
	return nil
}

// stateOf opens an image of a database in the state of the entry that is being applied.
func (ck *checks) stateOf(id uint64) (f *pageFile, m *image, pos Position, err error) {
	db := ck.node.catalog.byID(id)
	if db == nil {
		return nil, nil, pos, errDeleted
	}
	if f, err = openPages(db.keeperURI(), db.path, &ck.node.opts.disk); err != nil {
		return nil, nil, pos, err
	}
	for end := time.Now().Add(5 * time.Second); ; {
		m, pos, err = db.state(f)
		if err == nil && m != nil {
			return f, m, pos, nil
		}
		if err == nil && time.Now().After(end) {
			err = errRecovering
		}
		if err != nil || ck.node.life.closing.Err() != nil {
			return nil, nil, pos, errors.Join(err, ck.node.life.closing.Err(), f.close())
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// state returns an image of the database at pos, nil while the writer of the last transaction has not put
// it into the file. No later one is put there: the state machine has not counted it.
func (db *database) state(f *pageFile) (*image, Position, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if err := errors.Join(db.load(), db.flush()); err != nil {
		return nil, db.pos, err
	}
	if db.ahead {
		return nil, db.pos, errRecovering
	}
	h, _, err := f.header()
	if err != nil {
		return nil, db.pos, err
	}
	if commits := db.commits.Load(); db.owed.Load() || commits != 0 && commits != h.change {
		return nil, db.pos, nil
	}
	m, err := f.image()
	return m, db.pos, err
}

// Verify compares the pages of all databases on all members, one database after the other. It reads every page as
// it is in the files, and compares the states at one entry of raft's log, so writers need not stop.
// It waits for members that are behind until ctx ends. The error names each database that differs, with
// ErrDiffer, and each member that could not be asked.
func (n *Node) Verify(ctx context.Context) error {
	var errs []error
	for _, db := range n.catalog.all() {
		for begin := time.Now(); ; {
			again, err := n.checks.verify(ctx, db, begin)
			if again == nil {
				errs = append(errs, err)
				break
			}
			select {
			case <-ctx.Done():
				return errors.Join(append(errs, fmt.Errorf("%s: %w: %w", db.name, again, ctx.Err()))...)
			case <-n.life.closing.Done():
				return errors.Join(append(errs, fmt.Errorf("%s: %w", db.name, again))...)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	return errors.Join(errs...)
}

// verify compares a database. again is the reason to repeat it.
func (ck *checks) verify(ctx context.Context, db *database, begin time.Time) (again, err error) {
	leader, lead := ck.node.raft.LeaderWithID()
	var id proposalID
	var index uint64
	if ck.node.role.leader() != nil {
		id, index, err = ck.begin(ctx, db.id)
	} else if lead == "" || string(lead) == ck.node.opts.ID {
		err = ck.node.role.notLeader()
	} else {
		var a answer
		a, err = ck.node.wire.ask(ctx, peer{string(lead), string(leader)}, request{Kind: askCheck, Database: db.id})
		id, index = a.Check, a.Index
	}
	if ck.node.catalog.byID(db.id) == nil {
		return nil, nil // it was deleted
	}
	if err != nil && ctx.Err() == nil && ck.node.life.closing.Err() == nil && time.Since(begin) < max(10*ck.node.opts.Election, 10*time.Second) {
		return err, nil // there may be a leader soon
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", db.name, err)
	}
	c := ck.node.raft.GetConfiguration()
	if err := c.Error(); err != nil {
		return nil, err
	}
	var errs []error
	sums := make(map[uint64]bool)
	members := c.Configuration().Servers
	if !slices.ContainsFunc(members, func(m raft.Server) bool { return string(m.ID) == ck.node.opts.ID }) {
		members = append(slices.Clone(members), raft.Server{ID: raft.ServerID(ck.node.opts.ID)})
	}
	for _, m := range members {
		a, err := ck.sumAt(ctx, m, id, index)
		switch {
		case ck.node.catalog.byID(db.id) == nil:
			return nil, nil
		case err != nil && ctx.Err() == nil && strings.Contains(err.Error(), errRecovering.Error()):
			return fmt.Errorf("%s: %w", m.ID, err), nil
		case err != nil:
			errs = append(errs, fmt.Errorf("%s on %s: %w", db.name, m.ID, err))
			continue
		case a.Sum != a.Position.Sum:
			errs = append(errs, fmt.Errorf("%w: %s on %s has the checksum %016x instead of %016x", ErrDiffer, db.name, m.ID, a.Sum, a.Position.Sum))
		}
		sums[a.Position.Sum] = true
	}
	if len(sums) > 1 {
		errs = append(errs, fmt.Errorf("%w: the members have different checksums of %s at one entry of raft's log", ErrDiffer, db.name))
	}
	return nil, errors.Join(errs...)
}

// sumAt asks a member for the result of a check, which is at an index or before, until it has it. A member that was
// started again, or that got a snapshot, never has it.
func (ck *checks) sumAt(ctx context.Context, m raft.Server, id proposalID, index uint64) (a answer, err error) {
	own := string(m.ID) == ck.node.opts.ID
	for {
		has := ck.node.progress.applied.Load()
		if !own {
			has, err = ck.node.wire.progress(ctx, m)
		}
		if own {
			a = ck.answer(id, ctx.Done())
		} else if err == nil {
			a, err = ck.node.wire.ask(ctx, ck.node.wire.peerOf(m), request{Kind: askSum, Check: id})
		}
		switch {
		case err != nil:
			return a, err
		case a.Error != "":
			return a, errors.New(a.Error)
		case !a.Pending:
			return a, nil
		case ctx.Err() != nil:
			return a, fmt.Errorf("it has not come to the entry at which the pages are compared, or reads them still: %w", ctx.Err())
		case ck.node.life.closing.Err() != nil:
			return a, ck.node.life.closing.Err()
		case !a.Begun && has >= index:
			return a, errRecovering // it has skipped the entry
		}
	}
}

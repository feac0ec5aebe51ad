// SPDX-License-Identifier: MIT

package replica

import (
	"context"
	"fmt"
	"net"
	"time"
)

// Feed has the states of a node's databases for a continuous backup: package sqlitevfs/backup takes it as a Source. A
// transaction is numbered by the entry of raft's log that made it, see Position.Index. All members number it alike, so a
// new leader continues where the former one ended. Its methods may be called concurrently.
type Feed struct{ n *Node }

// Feed returns the feed of the node. A node has one backup at a time.
func (n *Node) Feed() *Feed {
	n.changes.mu.Lock()
	defer n.changes.mu.Unlock()
	if n.changes.names == nil {
		n.changes.names = make(map[string]struct{})
	}
	return &Feed{n}
}

// Lead waits until this node leads and has applied all entries from before. It returns the identity of the cluster, see
// Status.Cluster, and raft's term. over is closed when the leadership ends, which a node without a connection to the
// others notices late. The error is that of the context, or net.ErrClosed.
func (f *Feed) Lead(ctx context.Context) (cluster string, term uint64, over <-chan struct{}, err error) {
	for {
		l, turn := f.n.role.current()
		f.n.membership.mu.RLock()
		id := f.n.membership.cluster
		f.n.membership.mu.RUnlock()
		var soon <-chan time.Time
		switch {
		case l != nil && id != 0:
			return fmt.Sprintf("%016x", id), l.term, turn, nil
		case l != nil: // the first leader gives the cluster its identity
			soon = time.After(10 * time.Millisecond)
		}
		select {
		case <-turn:
		case <-soon:
		case <-ctx.Done():
			return "", 0, nil, ctx.Err()
		case <-f.n.life.closing.Done():
			return "", 0, nil, net.ErrClosed
		}
	}
}

// Positions returns the databases, each with the number of its newest transaction. A database that is not among
// them did not exist at the entry newest.
func (f *Feed) Positions() (newest uint64, all map[string]uint64) {
	newest = f.n.progress.applied.Load()
	all = make(map[string]uint64)
	for _, db := range f.n.catalog.all() {
		db.mu.Lock()
		all[db.name] = db.pos.Index
		db.mu.Unlock()
	}
	return newest, all
}

// Changed returns the names of databases that have changed since the last call, or were created or deleted, and a channel
// that is closed when there are more. A commit that has returned on this node is in it.
func (f *Feed) Changed() (names []string, more <-chan struct{}) { return f.n.changes.taken() }

// Read calls fn with the newest state of a database: its transaction, and its size in pages. changed has the pages that may differ from the
// state of the transaction since, sorted; nil means that this is not known. page returns a page, numbered from 1; the slice is valid until
// the next call. Transactions go on meanwhile. Read compares the pages with the database's checksum if fn reads all of them in their order.
// If there is no such database, the error matches os.ErrNotExist.
func (f *Feed) Read(ctx context.Context, name string, since uint64, fn func(txid uint64, pageSize int, pages uint32, changed []uint32, page func(n uint32) ([]byte, error)) error) (err error) {
	db, err := f.n.catalog.named(name)
	if err != nil {
		return err
	}
	file, m, pos, err := f.n.checks.stateOf(db.id)
	if err != nil {
		return fmt.Errorf("replica: reading %s: %w", name, err)
	}
	p := make([]byte, m.pageSize)
	read, sum := uint32(0), uint64(0)
	page := func(n uint32) ([]byte, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := m.read(n, p); err != nil {
			return nil, fmt.Errorf("replica: reading %s: %w", name, err)
		}
		if n == read+1 {
			read, sum = n, sum^pageSum(n, p)
		}
		if read == m.pages && sum != pos.Sum {
			f.n.repairs.differs(db.id, sum, pos)
			return nil, fmt.Errorf("replica: reading %s: %w: its pages have the checksum %016x instead of %016x", name, ErrDiffer, sum, pos.Sum)
		}
		return p, nil
	}
	err = fn(pos.Index, int(m.pageSize), m.pages, f.n.changes.between(db.id, since, pos.Index), page)
	if doneErr := m.done(); err == nil {
		err = doneErr
	}
	if closeErr := file.close(); err == nil {
		err = closeErr
	}
	return err
}

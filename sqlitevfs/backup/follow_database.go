// SPDX-License-Identifier: MIT

package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/superfly/ltx"
)

// listen has the databases that change stored.
func (b *Backup) listen() {
	for {
		more := b.hear()
		select {
		case <-more:
		case <-b.ctx.Done():
			return
		}
	}
}

// hear puts the databases that have changed into the queue.
func (b *Backup) hear() (more <-chan struct{}) {
	b.hearing.Lock()
	defer b.hearing.Unlock()
	names, more := b.source.Changed()
	for _, name := range names {
		d, _ := b.named(name, "")
		d.wait()
	}
	return more
}

// reconcile compares the databases of the source with the target. It repeats that, because another process may have written an
// object before it noticed that it no longer was to do so.
func (b *Backup) reconcile() {
	for b.search(b.reconcileOnce) {
		select {
		case <-b.ctx.Done():
			return
		case <-time.After(b.opts.SnapshotEvery):
		}
	}
}

// reconcileOnce has stored what the target lacks: the databases that have another transaction there, and the end of those that were
// deleted. What was deleted longer ago than Keep is removed.
func (b *Backup) reconcileOnce() error {
	if err := b.own(b.ctx); err != nil {
		return err
	}
	b.counts.requests.Add(1)
	stored, err := Databases(b.ctx, b.target)
	if err != nil {
		return err
	}
	_, positions := b.source.Positions()
	var names []string
	for _, r := range stored {
		at, exists := positions[r.Name]
		delete(positions, r.Name)
		switch {
		case exists && (r.TXID != at || len(r.Problems) > 0), !exists && r.Deleted.IsZero():
			names = append(names, r.Name)
		case !exists && time.Since(r.Deleted) > b.opts.Keep:
			if err := b.forget(r.Name); err != nil {
				return err
			}
		}
	}
	for name := range positions {
		names = append(names, name)
	}
	b.adoptAll(names)
	return nil
}

// forget removes the objects of a deleted database.
func (b *Backup) forget(name string) error {
	b.counts.requests.Add(2)
	objects, err := b.target.List(b.ctx, prefixOf(name))
	if err != nil {
		return err
	}
	slices.SortFunc(objects, func(a, b Object) int { return strings.Compare(a.Name, b.Name) }) // the end last
	for _, o := range objects {
		if err := b.target.Delete(b.ctx, o.Name); err != nil {
			return err
		}
	}
	return nil
}

// prepareState makes the next object of a database of the source. There is none if the target has the newest transaction.
func (d *database) prepareState(ctx context.Context) error {
	d.mu.Lock()
	d.waiting.Store(false) // a later commit begins a new turn
	full := d.full
	d.full, d.why = false, nil
	since, epoch := d.flushing()
	d.mu.Unlock()
	d.b.begun(d, since)
	err := d.readState(ctx, full, since, epoch)
	if errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil && !isTarget(err) {
		d.known = false
		err = d.noteDeleted(ctx, epoch)
	}
	if err != nil && full {
		d.mu.Lock()
		d.lose(err)
		d.mu.Unlock()
	}
	return err
}

func (d *database) readState(ctx context.Context, full bool, since time.Time, epoch uint64) error {
	var size uint32 // of the state in the target
	before := d.sums.checksum()
	if size = uint32(len(d.sums.page)); !d.known {
		var err error
		if before, size, err = d.newestStored(ctx); err != nil {
			return err
		}
		full = full || size == 0
	}
	return d.b.source.Read(ctx, d.name, uint64(d.txid), func(txid uint64, pageSize int, pages uint32, changed []uint32, page func(n uint32) ([]byte, error)) error {
		s := sourceState{txid: ltx.TXID(txid), pageSize: pageSize, pages: pages, changed: changed, page: page}
		switch {
		case s.txid < d.txid:
			return fmt.Errorf("backup: %s: the target has the transaction %d, and the newest one is %d: use another target", d.name, d.txid, s.txid)
		case s.txid == d.txid && d.known && !full:
			d.b.finished(d, epoch)
			return nil
		}
		if full || d.page != 0 && d.page != pageSize {
			s.changed, s.snapshot = nil, true
		}
		return d.encodeState(s, before, size, since, epoch)
	})
}

// newestStored returns the checksum of the newest state in the target and its size in pages, 0 if there is none.
func (d *database) newestStored(ctx context.Context) (sum ltx.Checksum, pages uint32, err error) {
	files, err := d.files(ctx)
	if err != nil {
		return 0, 0, &targetError{error: err}
	}
	chain, err := plan(files)
	if len(chain) == 0 || err != nil {
		if errors.Is(err, ErrGap) {
			d.b.log.Warn("backup: a snapshot follows", "database", d.name, "error", err)
		}
		d.txid, d.page = 0, 0
		return 0, 0, nil
	}
	last := chain[len(chain)-1]
	d.b.counts.requests.Add(2)
	h, err := header(ctx, d.b.target, d.name, last)
	if err == nil {
		sum, err = tail(ctx, d.b.target, d.name, last)
	}
	if errors.Is(err, ltx.ErrInvalidFile) {
		return 0, 0, nil
	} else if err != nil {
		return 0, 0, &targetError{error: err}
	}
	d.txid, d.page = last.Max, int(h.PageSize)
	return sum, h.Commit, nil
}

// sourceState is a state of a database of the source.
type sourceState struct {
	txid     ltx.TXID
	pageSize int
	pages    uint32
	changed  []uint32 // since the state in the target; nil: all
	snapshot bool     // it does not continue the state in the target
	page     func(n uint32) ([]byte, error)
}

// encodeState makes an object of a state that follows one of size pages in the target. If the checksums of the pages are not known, it
// reads all of them.
func (d *database) encodeState(s sourceState, before ltx.Checksum, size uint32, since time.Time, epoch uint64) error {
	o := &object{File: File{Min: d.txid + 1, Max: s.txid, Time: stamp()}, since: since, epoch: epoch}
	bytes := int64(len(s.changed)) * int64(s.pageSize)
	if s.changed == nil {
		bytes = int64(s.pages) * int64(s.pageSize)
	}
	if s.snapshot {
		o.Level, o.Min = levelSnapshot, 1
	}
	var all sums
	if d.known && s.changed != nil {
		all = sums{slices.Clone(d.sums.page), d.sums.all}
	}
	all.resize(s.pages)
	same := s.txid == d.txid && s.changed != nil // it was found there; only its checksum is to be computed
	var err error
	var out io.Writer = io.Discard
	if !same {
		if out, err = d.output(o, bytes); err != nil {
			return err
		}
	}
	visit := func(write func(uint32, []byte) error) (ltx.Checksum, error) {
		err := s.each(&all, size, d.known, write)
		return all.checksum(), err
	}
	if same {
		return d.compare(visit, &all, before, epoch)
	}
	err = encode(out, o.header(s.pageSize, s.pages, before), visit)
	o.sums = func() { d.sums, d.page = all, s.pageSize }
	if err == nil {
		err = d.setReady(o, out)
	}
	if err != nil {
		o.discard()
	}
	return err
}

// each enters the checksums of pages and calls write for those that the state before, of size pages, does not have. It
// reads the others if known is false.
func (s *sourceState) each(all *sums, size uint32, known bool, write func(uint32, []byte) error) error {
	lock := ltx.LockPgno(uint32(s.pageSize))
	changed := s.changed
	for n := uint32(1); n <= s.pages; n++ {
		for len(changed) > 0 && changed[0] < n {
			changed = changed[1:]
		}
		wanted := s.changed == nil || n > size || len(changed) > 0 && changed[0] == n
		if s.changed != nil && known && !wanted {
			if n = min(s.pages, size); len(changed) > 0 {
				n = min(n, changed[0]-1)
			}
			continue
		}
		p, err := s.page(n)
		if err != nil {
			return err
		}
		if n == lock {
			all.set(n, 0)
			continue
		}
		all.set(n, pageSum(n, p))
		if !wanted {
			continue
		}
		if err := write(n, p); err != nil {
			return err
		}
	}
	return nil
}

// compare computes the checksums of a state that the target has.
func (d *database) compare(visit func(write func(uint32, []byte) error) (ltx.Checksum, error), all *sums, want ltx.Checksum, epoch uint64) error {
	sum, err := visit(func(uint32, []byte) error { return nil })
	if err != nil {
		return err
	}
	if sum != want {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.lose(errBase)
		return fmt.Errorf("backup: %s: %w of transaction %d", d.name, errBase, d.txid)
	}
	d.sums, d.known = *all, true
	d.b.finished(d, epoch)
	return nil
}

// noteDeleted notes in the target that the database was deleted.
func (d *database) noteDeleted(ctx context.Context, epoch uint64) error {
	newest, positions := d.b.source.Positions()
	if _, ok := positions[d.name]; ok {
		return fmt.Errorf("backup: %s was deleted and created again: it is read again", d.name)
	}
	objects, err := d.b.target.List(ctx, prefixOf(d.name))
	if err != nil {
		return &targetError{error: err}
	}
	last := ltx.TXID(0)
	for _, o := range objects {
		if name, f, ok := parseObject(o); ok && name == d.name {
			last = max(last, f.Max)
		}
	}
	if last > 0 && !ended(d.name, objects, last) {
		name := prefixOf(d.name) + deletedLevel + "/" + max(last, ltx.TXID(newest)).String()
		if err := d.b.put(ctx, name, io.NewSectionReader(bytes.NewReader(nil), 0, 0), stamp()); err != nil {
			return err
		}
	}
	d.b.finished(d, epoch)
	return nil
}

// ended reports whether one of the objects of a stream is its end after a transaction.
func ended(database string, objects []Object, last ltx.TXID) bool {
	return slices.ContainsFunc(objects, func(o Object) bool {
		name, at, ok := parseDeleted(o)
		return ok && name == database && at >= last
	})
}

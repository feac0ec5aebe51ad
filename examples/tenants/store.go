// SPDX-License-Identifier: MIT

package main

import (
	"container/list"
	"context"
	"errors"
	"log"
	"os"
	"path/filepath"
	"sync"
	"time"
)

var (
	errBusy   = errors.New("every database that may be open is in use")
	errClosed = errors.New("the service is ending")
)

// atOnce is how many databases are opened at a time. Each open waits for the disk
// in a thread, which Go then keeps: opening sixty-four at once, after a start, left
// up to seventy threads until the service ended.
const atOnce = 4

// store has the databases of the tenants below one directory and keeps at most
// most of them open: an open database costs descriptors and some megabytes, a closed
// one costs a file.
type store struct {
	root *os.Root
	vfs  string
	most int

	opening chan struct{} // limits how many databases are opened at a time

	mu     sync.Mutex
	open   map[string]*tenant // at most most, including those that are being opened or closed
	idle   list.List          // unused *tenant, least recently used first
	change chan struct{}      // closed when a database becomes idle or is closed
	closed bool
}

// tenant is a place among the open databases. The store's mutex guards users,
// place and closing.
type tenant struct {
	*database
	file    string
	ready   chan struct{} // closed when database or err is set
	err     error
	users   int
	place   *list.Element // in idle
	closing bool
}

func newStore(dir, vfs string, most int) (*store, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &store{
		root: root, vfs: vfs, most: most, opening: make(chan struct{}, atOnce),
		open: make(map[string]*tenant), change: make(chan struct{}),
	}, nil
}

// with calls do with a tenant's database, which it creates if it is missing and
// create is set. If all places are in use, it waits for one until ctx ends.
func (s *store) with(ctx context.Context, name string, create bool, do func(*database) error) error {
	file, err := fileOf(name)
	if err != nil {
		return err
	}
	if there, err := present(s.root, file); err != nil {
		return err
	} else if !there && !create {
		return errMissing
	}
	t, err := s.acquire(ctx, file)
	if err != nil {
		return err
	}
	defer s.release(t)
	return do(t.database)
}

func (s *store) acquire(ctx context.Context, file string) (*tenant, error) {
	for {
		t, first, wait, err := s.take(file)
		switch {
		case err != nil:
			return nil, err
		case first:
			s.fill(ctx, t)
		case t != nil:
			wait = t.ready
		}
		if !first {
			select {
			case <-wait:
			case <-ctx.Done():
				if t != nil {
					s.release(t)
				}
				return nil, errBusy
			}
		}
		if t == nil {
			continue
		}
		if t.err != nil {
			defer s.release(t)
			return nil, t.err
		}
		return t, nil
	}
}

// take returns the tenant's place, and whether the caller must fill it. If no place
// is free, it returns a channel to wait on before calling take again.
func (s *store) take(file string) (t *tenant, first bool, wait chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t = s.open[file]
	switch {
	case s.closed:
		return nil, false, nil, errClosed
	case t != nil && t.closing:
		return nil, false, s.change, nil
	case t != nil:
		if t.place != nil {
			s.idle.Remove(t.place)
			t.place = nil
		}
		t.users++
		return t, false, nil, nil
	case len(s.open) < s.most:
		t = &tenant{file: file, ready: make(chan struct{}), users: 1}
		s.open[file] = t
		return t, true, nil, nil
	}
	if oldest := s.idle.Front(); oldest != nil {
		t := s.idle.Remove(oldest).(*tenant)
		t.place, t.closing = nil, true
		go s.shut(t)
	}
	return nil, false, s.change, nil
}

// fill opens the database of a place. Other requests may wait for it, too, so the end
// of the first request does not cancel it.
func (s *store) fill(ctx context.Context, t *tenant) {
	s.opening <- struct{}{}
	defer func() { <-s.opening }()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	t.database, t.err = openDatabase(ctx, filepath.Join(s.root.Name(), t.file), s.vfs)
	close(t.ready)
}

// release gives a place back. A place whose database could not be opened is removed,
// so that the next request tries again.
func (s *store) release(t *tenant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.users--; t.users > 0 {
		return
	}
	if t.err != nil {
		delete(s.open, t.file)
	} else {
		t.place = s.idle.PushBack(t)
	}
	s.changed()
}

// shut closes an unused database, and frees its place.
func (s *store) shut(t *tenant) {
	if err := t.database.close(); err != nil {
		log.Printf("%s: %v", t.file, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, t.file)
	s.changed()
}

// changed wakes all goroutines that wait for a place.
func (s *store) changed() {
	close(s.change)
	s.change = make(chan struct{})
}

// opened returns how many databases are open.
func (s *store) opened() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// close refuses new requests, waits for requests in progress and for the databases to
// close, at most the given time, and returns how many databases are still open.
func (s *store) close(wait time.Duration) int {
	defer s.root.Close()
	limit := time.NewTimer(wait)
	defer limit.Stop()
	for {
		left, change := s.shutIdle()
		if left == 0 {
			return 0
		}
		select {
		case <-change:
		case <-limit.C:
			return left
		}
	}
}

// shutIdle begins to close unused databases. It returns how many databases are
// still open, and a channel that is closed when that changes.
func (s *store) shutIdle() (int, chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for e := s.idle.Front(); e != nil; e = s.idle.Front() {
		t := s.idle.Remove(e).(*tenant)
		t.place, t.closing = nil, true
		go s.shut(t)
	}
	return len(s.open), s.change
}

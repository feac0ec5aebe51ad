// SPDX-License-Identifier: MIT

package ufile

import (
	"os"
	"runtime"
	"sync"

	"github.com/ringside-io/ringside/internal/sys"
)

// Sync makes the file durable, like os.File.Sync: everything that was written before the call.
// It is a plain fsync(2): a ring would pass it to a worker thread, which is slower. When eight
// calls of Sync and [File.Datasync] are in progress, later ones wait for the next system call
// together, and share its error.
func (f *File) Sync() error { return f.sync(true) }

// Datasync makes the content of the file durable, and the metadata that is needed to read
// it, like fdatasync(2). The times of the file may be lost. Where a system has no such
// call, Datasync is Sync. After an error of Datasync or Sync, assume that the content is
// lost: a second call may return nil although nothing was written.
func (f *File) Datasync() error { return f.sync(!sys.HaveFdatasync) }

func (f *File) sync(full bool) error {
	if f.none() {
		return os.ErrInvalid
	}
	return f.syncs.do(full, func(full bool) error {
		if full {
			return f.std().Sync()
		}
		return f.control("fdatasync", sys.Fdatasync)
	})
}

// syncs is the syncs of a file. Each call makes its own until manyCalls run at a time. Then calls share: a sync
// covers what was written before it begins, so one sync runs, and the calls that come meanwhile make
// one together. The kernel overlaps a few syncs better than that, and many worse, and each one
// holds a thread (results/notes/speed-files.md).
type syncs struct {
	mu      sync.Mutex
	running int         // in progress, or chosen to begin
	shares  bool        // calls share
	last    int         // the calls of the shared sync before
	few     int         // how many shared syncs in a row had few calls
	next    *sharedSync // that has not begun, of the calls that wait
}

// sharedSync is the sync of several calls. The first of them leads: it waits until it is chosen.
type sharedSync struct {
	calls  int
	full   bool // one of the calls is Sync
	chosen chan struct{}
	begins bool          // chosen is closed
	done   chan struct{} // closed when err is set
	err    error
}

const (
	manyCalls = 8
	// When fewInRow shared syncs in a row had less than fewCalls calls, calls share no longer.
	fewCalls, fewInRow = 6, 8
	// syncYields is how often in a row a leader yields without a new call, so that those which the sync before has
	// woken can join.
	syncYields = 4
)

// do makes a sync by a function, or waits for one that begins after the call. The function
// is told whether any of the calls wants the times, too.
func (s *syncs) do(full bool, call func(full bool) error) error {
	s.mu.Lock()
	if !s.shares {
		if s.running++; s.running == manyCalls {
			s.shares, s.few = true, 0
		}
		s.mu.Unlock()
		defer s.end()
		return call(full)
	}
	g := s.next
	if g != nil {
		g.calls++
		g.full = g.full || full
		s.mu.Unlock()
		<-g.done
		return g.err
	}
	g = &sharedSync{calls: 1, full: full, chosen: make(chan struct{}), done: make(chan struct{})}
	s.next = g
	s.choose()
	s.mu.Unlock()
	<-g.chosen
	full = s.take(g)
	defer s.end()
	defer close(g.done)
	g.err = call(full)
	return g.err
}

// choose lets the next shared sync begin if none runs. The caller holds the mutex.
func (s *syncs) choose() {
	if g := s.next; g != nil && !g.begins && s.running == 0 {
		g.begins = true
		s.running++
		close(g.chosen)
	}
}

// take yields while calls join, and begins the shared sync: later calls make another one. It reports
// whether one of the calls is Sync.
func (s *syncs) take(g *sharedSync) (full bool) {
	for calls, idle := 0, 0; idle < syncYields; idle++ {
		runtime.Gosched()
		s.mu.Lock()
		n, all := g.calls, g.calls >= s.last
		s.mu.Unlock()
		if all {
			break
		}
		if n > calls {
			calls, idle = n, -1
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next, s.last = nil, g.calls
	if s.few++; g.calls >= fewCalls {
		s.few = 0
	}
	s.shares = s.few < fewInRow
	return g.full
}

// end ends a sync.
func (s *syncs) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	s.choose()
}

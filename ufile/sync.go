// SPDX-License-Identifier: MIT

package ufile

import (
	"os"
	"runtime"
	"sync"

	"github.com/ringside-io/ringside/internal/sys"
)

// Sync makes the file durable, like os.File.Sync: everything that was written before the call.
// It is a plain fsync(2): a ring would pass it to a worker thread, which is slower. Calls of Sync and
// [File.Datasync] that wait at the same time share one system call and its error, when four others
// are already in progress.
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

// syncs is the syncs of a file. A sync covers what was written before it begins. So a call that
// comes while maxSyncs are in progress joins the next one.
type syncs struct {
	mu      sync.Mutex
	running int         // in progress, or chosen to begin
	next    *sharedSync // that has not begun, of the calls that wait
}

// sharedSync is the sync of several calls. The first of them leads: it waits until it is chosen.
type sharedSync struct {
	full   bool // one of the calls is Sync
	chosen chan struct{}
	begins bool          // chosen is closed
	done   chan struct{} // closed when err is set
	err    error
}

const (
	// maxSyncs is how many syncs of a file run at a time. The kernel overlaps few of them, and each one
	// holds a thread (results/notes/speed-files.md).
	maxSyncs = 4
	// syncYields is how often a leader yields, so that calls which the sync before has woken can join.
	syncYields = 2
)

// do makes a sync by a function, or waits for one that begins after the call. The function
// is told whether any of the calls wants the times, too.
func (s *syncs) do(full bool, call func(full bool) error) error {
	s.mu.Lock()
	if s.running < maxSyncs {
		s.running++
		s.mu.Unlock()
		defer s.end()
		return call(full)
	}
	g := s.next
	if g != nil {
		g.full = g.full || full
		s.mu.Unlock()
		<-g.done
		return g.err
	}
	g = &sharedSync{full: full, chosen: make(chan struct{}), done: make(chan struct{})}
	s.next = g
	s.mu.Unlock()
	<-g.chosen
	for range syncYields {
		runtime.Gosched()
	}
	s.mu.Lock()
	s.next = nil
	full = g.full
	s.mu.Unlock()
	defer s.end()
	defer close(g.done)
	g.err = call(full)
	return g.err
}

// end ends a sync, and lets the next one begin in its place.
func (s *syncs) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.next; g != nil && !g.begins {
		g.begins = true
		close(g.chosen)
		return
	}
	s.running--
}

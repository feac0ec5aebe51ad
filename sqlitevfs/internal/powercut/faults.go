// SPDX-License-Identifier: MIT

package powercut

import (
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/ringside-io/ringside/internal/testing/powercut"
)

// process is the owner of open files. After a kill it changes nothing.
type process struct{ dead atomic.Bool }

func (p *process) gone() error {
	if p.dead.Load() {
		return syscall.EIO
	}
	return nil
}

// faults counts the calls that reach the disk, and makes one of them fail with EIO.
type faults struct {
	mu    sync.Mutex
	nth   int // counted from 0; -1: none
	calls int
	what  string // the call that failed; "" if none has
}

// FailAt makes the call with a number fail: a sync or a write of a file. It counts from now on.
func (r *Recorder) FailAt(nth int) {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	r.faults.nth, r.faults.calls, r.faults.what = nth, 0, ""
}

// Calls returns how many calls could have failed, and the one that did.
func (r *Recorder) Calls() (n int, failed string) {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	return r.faults.calls, r.faults.what
}

func (f *faults) call(op, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.calls-1 != f.nth {
		return nil
	}
	f.what = op + " " + name
	return syscall.EIO
}

// name returns the name of a file of the trace.
func (r *Recorder) name(number int) string {
	if number < 0 {
		return ""
	}
	return r.Trace().Files[number]
}

// sync records a sync. One that fails loses what was written to the file since the sync before, as the
// kernel counts the pages as written.
func (r *Recorder) sync(p *process, number int, sync func() error) error {
	if err := p.gone(); err != nil {
		return err
	}
	if number >= 0 {
		if err := r.faults.call("sync", r.name(number)); err != nil {
			r.Note(powercut.Op{Kind: powercut.Lose, File: number})
			return err
		}
	}
	return r.Synced(number, "", sync)
}

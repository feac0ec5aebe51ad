// SPDX-License-Identifier: MIT

package powercut

import (
	"sync"
	"syscall"
)

// faults counts the calls that reach the disk, and makes one of them fail with EIO.
type faults struct {
	mu    sync.Mutex
	nth   int // counted from 1; 0: none
	calls int
	what  string // the call that failed; "" if none has
}

// FailAt makes the call with a number fail: a sync or a write of a file. It counts from now on,
// from 0. No call fails after FailAt(-1).
func (r *Recorder) FailAt(nth int) {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	r.faults.nth, r.faults.calls, r.faults.what = nth+1, 0, ""
}

// Calls returns how many calls could have failed, and the one that did.
func (r *Recorder) Calls() (n int, failed string) {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	return r.faults.calls, r.faults.what
}

// Fault counts a call that may fail, and returns its error.
func (r *Recorder) Fault(op string, file int) error {
	f := &r.faults
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.calls != f.nth {
		return nil
	}
	f.what = op
	if file >= 0 {
		f.what += " " + r.Trace().Files[file]
	}
	return syscall.EIO
}

// SyncedOrLost is Synced for a file whose sync may fail by [Recorder.FailAt]. A sync that fails
// loses what was written to the file since the sync before, as the kernel counts the pages as
// written.
func (r *Recorder) SyncedOrLost(file int, sync func() error) error {
	if file >= 0 {
		if err := r.Fault("sync", file); err != nil {
			r.Note(Op{Kind: Lose, File: file})
			return err
		}
	}
	return r.Synced(file, "", sync)
}

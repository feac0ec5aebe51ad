// SPDX-License-Identifier: MIT

package ufile

import (
	"sync"
	"sync/atomic"
)

// workers read and write ranges by plain calls on several goroutines.
type workers struct {
	ranges []Range
	only   []int // if not empty, the indices of the ranges to work on
	task   task
	next   atomic.Int64
	wg     sync.WaitGroup
	helper func() // w.help, allocated once
}

// task is the work of [workers].
type task int

const (
	readAll   task = iota // read the ranges
	writeAll              // write the ranges
	readCache             // read the parts that the page cache holds
)

// run carries out a task on a number of goroutines, one of which is the caller's,
// and waits for them.
func (w *workers) run(ranges []Range, task task, goroutines int) {
	w.start(ranges, task, min(len(ranges), goroutines)-1)
	w.work()
	w.finish()
}

// start starts a task on a number of goroutines. finish waits for them.
func (w *workers) start(ranges []Range, task task, goroutines int) {
	if w.helper == nil {
		w.helper = w.help
	}
	w.ranges, w.task = ranges, task
	w.next.Store(0)
	for range goroutines {
		w.wg.Add(1)
		go w.helper()
	}
}

func (w *workers) finish() {
	w.wg.Wait()
	w.ranges, w.only = nil, nil
}

// all returns the task of reading or writing whole ranges.
func all(write bool) task {
	if write {
		return writeAll
	}
	return readAll
}

func (w *workers) help() {
	defer w.wg.Done()
	w.work()
}

// work takes ranges, which all workers share, until none is left.
func (w *workers) work() {
	for {
		i := int(w.next.Add(1) - 1)
		if len(w.only) > 0 {
			if i >= len(w.only) {
				return
			}
			i = w.only[i]
		} else if i >= len(w.ranges) {
			return
		}
		switch r := &w.ranges[i]; w.task {
		case readAll, writeAll:
			r.plain(w.task == writeAll)
		case readCache:
			r.tryCache()
		}
	}
}

// Cached ranges of this total and average size are copied by all processors.
const (
	sharedTotal = 512 << 10
	sharedRange = 16 << 10
)

// worthSharing reports whether ranges, if they are cached, are copied faster by all
// processors than by one.
func worthSharing(ranges []Range) bool {
	total := 0
	for i := range ranges {
		total += len(ranges[i].Buf)
	}
	return total >= sharedTotal && total/len(ranges) >= sharedRange
}

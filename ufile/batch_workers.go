// SPDX-License-Identifier: MIT

package ufile

import (
	"io"
	"os"
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

// tryCache reads the cached beginning of a range of a buffered file.
func (r *Range) tryCache() {
	f := r.File
	if f == nil || !f.accelerated() || f.direct || r.Off < 0 || !f.askCache() || !f.lock.Acquire() {
		return
	}
	r.fromCache()
	f.lock.Release()
}

// fromCache reads the cached beginning of a range. The caller has a reference on
// the file.
func (r *Range) fromCache() {
	for r.N < len(r.Buf) {
		n, ok := r.File.readCached(r.Buf[r.N:], r.Off+int64(r.N))
		if !ok || n == 0 {
			return
		}
		r.N += n
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

// plain reads or writes the rest of a range by plain calls.
func (r *Range) plain(write bool) {
	if write {
		r.writePlain()
		return
	}
	buf, off := r.Buf[r.N:], r.Off+int64(r.N)
	if f := r.File; f != nil && f.direct && off >= 0 && !aligned(buf, off) {
		r.readBounced(buf, off)
		return
	}
	n, err := r.File.ReadAt(buf, off)
	r.N, r.Err = r.N+n, err
}

// readBounced reads the aligned part of the file around the rest of a range.
func (r *Range) readBounced(buf []byte, off int64) {
	p := part{r: r}
	n, err := r.File.ReadAt(p.useBounce(buf, off))
	p.take(n)
	if r.N < len(r.Buf) {
		r.Err = err
	}
}

// writePlain writes the rest of a range. Unlike WriteAt it counts the bytes that
// were written before an error.
func (r *Range) writePlain() {
	f := r.File
	if f.std() == nil || !f.seekable() || f.appends || r.Off < 0 {
		n, err := f.WriteAt(r.Buf[r.N:], r.Off+int64(r.N))
		r.N, r.Err = r.N+n, err
		return
	}
	if !f.lock.Acquire() {
		r.Err = f.pathError("write", os.ErrClosed)
		return
	}
	defer f.lock.Release()
	for r.N < len(r.Buf) && r.Err == nil {
		n, err := f.plainCall(writing, r.Buf[r.N:], r.Off+int64(r.N))
		r.N, r.Err = r.N+n, err
		if n == 0 && err == nil {
			r.Err = f.pathError("write", io.ErrUnexpectedEOF)
		}
	}
}

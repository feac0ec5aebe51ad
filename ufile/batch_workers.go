// SPDX-License-Identifier: MIT

package ufile

import (
	"io"
	"os"
	"sync"
	"sync/atomic"
)

// crew does ranges by plain calls on several goroutines.
type crew struct {
	ranges []Range
	only   []int // unless empty, the ranges that are meant
	task   task
	next   atomic.Int64
	wg     sync.WaitGroup
	hand   func() // c.helper, made once
}

// task is what a crew does.
type task int

const (
	readAll   task = iota // read all
	writeAll              // write all
	readCache             // read what the page cache has
)

// run does a task on so many goroutines, the caller's included, and waits for
// them.
func (c *crew) run(ranges []Range, task task, goroutines int) {
	c.start(ranges, task, min(len(ranges), goroutines)-1)
	c.work()
	c.finish()
}

// start begins a task on so many goroutines, for which finish waits.
func (c *crew) start(ranges []Range, task task, goroutines int) {
	if c.hand == nil {
		c.hand = c.helper
	}
	c.ranges, c.task = ranges, task
	c.next.Store(0)
	for range goroutines {
		c.wg.Add(1)
		go c.hand()
	}
}

func (c *crew) finish() {
	c.wg.Wait()
	c.ranges, c.only = nil, nil
}

// all returns the task of doing all.
func all(write bool) task {
	if write {
		return writeAll
	}
	return readAll
}

func (c *crew) helper() {
	defer c.wg.Done()
	c.work()
}

func (c *crew) work() {
	for {
		i := int(c.next.Add(1) - 1)
		if len(c.only) > 0 {
			if i >= len(c.only) {
				return
			}
			i = c.only[i]
		} else if i >= len(c.ranges) {
			return
		}
		switch r := &c.ranges[i]; c.task {
		case readAll, writeAll:
			r.plain(c.task == writeAll)
		case readCache:
			r.tryCache()
		}
	}
}

// tryCache reads what the page cache has.
func (r *Range) tryCache() {
	f := r.File
	if f == nil || !f.accelerated() || f.direct || r.Off < 0 || !f.askCache() || !f.lock.Acquire() {
		return
	}
	r.fromCache()
	f.lock.Release()
}

// fromCache reads what the page cache has. The caller has a reference on the
// file.
func (r *Range) fromCache() {
	for r.N < len(r.Buf) {
		n, ok := r.File.readCached(r.Buf[r.N:], r.Off+int64(r.N))
		if !ok || n == 0 {
			return
		}
		r.N += n
	}
}

// Copies of this size are shared between the processors.
const (
	sharedTotal = 512 << 10
	sharedRange = 16 << 10
)

// worthSharing says whether ranges, if they are cached, are copied faster by all
// processors.
func worthSharing(ranges []Range) bool {
	total := 0
	for i := range ranges {
		total += len(ranges[i].Buf)
	}
	return total >= sharedTotal && total/len(ranges) >= sharedRange
}

// plain does what is left of a range by plain calls.
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

// writePlain writes what is left of a range and counts what it wrote before an
// error, which WriteAt does not.
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
		n, err := f.writePlain(r.Buf[r.N:], r.Off+int64(r.N))
		r.N, r.Err = r.N+n, err
		if n == 0 && err == nil {
			r.Err = f.pathError("write", io.ErrUnexpectedEOF)
		}
	}
}

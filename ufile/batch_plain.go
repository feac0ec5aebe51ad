// SPDX-License-Identifier: MIT

package ufile

import (
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
)

// crew does ranges by plain calls on several goroutines.
type crew struct {
	ranges []Range
	write  bool
	next   atomic.Int64
	wg     sync.WaitGroup
	hand   func() // c.work, made once
}

// run does ranges and waits for them.
func (c *crew) run(ranges []Range, write bool) {
	if c.hand == nil {
		c.hand = c.work
	}
	c.ranges, c.write = ranges, write
	c.next.Store(0)
	n := min(len(ranges), 8*runtime.GOMAXPROCS(0))
	c.wg.Add(n)
	for range n {
		go c.hand()
	}
	c.wg.Wait()
	c.ranges = nil
}

func (c *crew) work() {
	defer c.wg.Done()
	for {
		i := c.next.Add(1) - 1
		if i >= int64(len(c.ranges)) {
			return
		}
		c.ranges[i].plain(c.write)
	}
}

// plain does what is left of a range by plain calls.
func (r *Range) plain(write bool) {
	if write {
		r.writePlain()
		return
	}
	n, err := r.File.ReadAt(r.Buf[r.N:], r.Off+int64(r.N))
	r.N, r.Err = r.N+n, err
}

// writePlain writes what is left of a range and counts what it wrote before an
// error, which WriteAt does not.
func (r *Range) writePlain() {
	f := r.File
	if f.std() == nil || !f.seekable || f.appends || r.Off < 0 {
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

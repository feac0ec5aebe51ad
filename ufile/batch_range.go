// SPDX-License-Identifier: MIT

package ufile

import (
	"io"
	"os"
)

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
	if f.none() || !f.seekable() || f.appends || r.Off < 0 {
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

// part is a range in flight, or the rest of one.
type part struct {
	r       *Range
	bounced bool   // the kernel reads into bounce instead of Buf
	bounce  []byte // aligned memory, for O_DIRECT
	skip    int    // bytes of bounce before the range
	async   bool
	retries int // after ECANCELED
}

// reset makes a part ready for a range.
func (p *part) reset(r *Range) {
	if len(p.bounce) > bounceKept {
		p.bounce = nil
	}
	*p = part{r: r, bounce: p.bounce}
}

// useBounce returns aligned memory and the aligned part of the file around a
// range.
func (p *part) useBounce(buf []byte, off int64) ([]byte, int64) {
	p.skip = int(off % DirectAlign)
	n := (p.skip + len(buf) + DirectAlign - 1) / DirectAlign * DirectAlign
	if len(p.bounce) < n {
		p.bounce = AlignedBuffer(n)
	}
	p.bounced = true
	return p.bounce[:n], off - int64(p.skip)
}

// take adds n transferred bytes to the range and returns how many of them belong
// to it.
func (p *part) take(n int) int {
	if p.bounced {
		n = copy(p.r.Buf[p.r.N:], p.bounce[min(p.skip, n):n])
		p.bounced = false
	}
	p.r.N += n
	return n
}

// SPDX-License-Identifier: MIT

package ufile

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"

	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/uring"
)

// ReaderOptions configure a [Reader]. The zero value works.
type ReaderOptions struct {
	// Offset is the offset in bytes of the file at which reading begins.
	Offset int64
	// BlockSize is the number of bytes that are read at a time, rounded up to a multiple
	// of DirectAlign. 0 means 256 KiB.
	BlockSize int
	// Blocks is the number of blocks held in memory, including the one that is
	// being consumed. 0 means 4; with 1 nothing is read ahead.
	Blocks int
}

// Reader reads a file from front to back and keeps the next blocks in flight.
// [File.Read] cannot read ahead, because the file may be written to between two
// calls, and the second call must return the new data. A Reader begins with one
// block and reads ahead from the second call on.
//
// With O_DIRECT, and with ModeRing, blocks are read through the ring. They are aligned
// even if the calls of Read are not. Without io_uring, goroutines read O_DIRECT files
// ahead. Other files are read a block at a time, on request, because the kernel's own
// read-ahead is as fast. A Reader cannot read a pipe.
//
// The returned data may be as old as the read of its block. Seek drops the blocks that
// were read ahead. The end of the file and errors are reported at their position, and are
// checked again by each call: after io.EOF, Read returns data that was appended, and
// after an error the next call tries again.
//
// A Reader has a separate position and does not move the position of the file. Any number
// of Readers may read one file. The methods may be called concurrently and exclude each
// other.
type Reader struct {
	mu     sync.Mutex
	f      *File
	size   int // of a block
	max    int // blocks
	pos    int64
	closed bool

	queue  []*block // in the order of the file, from the one that holds pos
	spare  []*block // not in flight
	window int      // blocks to hold at present
	again  bool     // a call has asked for data before
	small  int64    // read in small pieces up to this offset: an error lies before it
}

const (
	readerBlock  = 256 << 10
	readerBlocks = 4
)

// NewReader returns a Reader of f. The caller still owns f and must keep it open.
func NewReader(f *File, o ReaderOptions) *Reader {
	if o.BlockSize <= 0 {
		o.BlockSize = readerBlock
	}
	if o.Blocks <= 0 {
		o.Blocks = readerBlocks
	}
	return &Reader{
		f: f, pos: o.Offset, window: 1, max: o.Blocks,
		size: (o.BlockSize + DirectAlign - 1) / DirectAlign * DirectAlign,
	}
}

// Read reads up to len(p) bytes, like os.File.Read. It returns at least one byte, unless
// there is an error or p is empty. At the end of the file the error is io.EOF. After
// Close, of the Reader or of the file, it is os.ErrClosed.
func (r *Reader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.usable("read"); err != nil {
		return 0, err
	}
	if len(p) == 0 {
		return 0, nil
	}
	data, err := r.peek()
	n := copy(p, data)
	r.advance(n)
	return n, err
}

// WriteTo writes the rest of the file to w, a block at a time, while the next blocks are
// being read. w must not retain the slice that its Write receives.
func (r *Reader) WriteTo(w io.Writer) (written int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.usable("read"); err != nil {
		return 0, err
	}
	r.again = true // the whole file will be read
	for {
		data, err := r.peek()
		if err == io.EOF {
			return written, nil
		}
		if err != nil {
			return written, err
		}
		n, err := w.Write(data)
		if n < 0 || n > len(data) {
			return written, errInvalidWrite
		}
		r.advance(n)
		written += int64(n)
		if err != nil {
			return written, err
		}
		if n < len(data) {
			return written, io.ErrShortWrite
		}
	}
}

// errInvalidWrite is the error of io.Copy for the same case.
var errInvalidWrite = errors.New("invalid write result")

// Seek sets the position of the next Read, like os.File.Seek. Unless the new position
// lies in the block that is being consumed, Seek waits for the blocks in flight and drops
// them.
func (r *Reader) Seek(offset int64, whence int) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.usable("seek"); err != nil {
		return 0, err
	}
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += r.pos
	case io.SeekEnd:
		st, err := r.f.Stat()
		if err != nil {
			return 0, err
		}
		offset += st.Size()
	default:
		return 0, r.f.pathError("seek", os.ErrInvalid)
	}
	if offset < 0 {
		return 0, r.f.pathError("seek", os.ErrInvalid)
	}
	if len(r.queue) == 0 || !r.queue[0].holds(offset) {
		r.forget()
	}
	r.pos = offset
	return offset, nil
}

// Close waits for the blocks in flight and frees the memory. The file stays open.
// Later calls return os.ErrClosed.
func (r *Reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.f.none():
		return os.ErrInvalid
	case r.closed:
		return r.f.pathError("close", os.ErrClosed)
	}
	r.closed = true
	r.forget()
	r.spare = nil
	return nil
}

// usable returns an error unless the reader and its file are open.
func (r *Reader) usable(op string) error {
	if r.f.none() {
		return os.ErrInvalid
	}
	if r.closed || r.f.lock.Closed() {
		return r.f.pathError(op, os.ErrClosed)
	}
	if r.pos < 0 {
		return r.f.pathError(op, errNegative)
	}
	return nil
}

// peek waits for data at the position. It returns at least one byte, or an error.
func (r *Reader) peek() ([]byte, error) {
	for {
		fresh := len(r.queue) == 0
		if fresh {
			r.start(r.pos)
		}
		if r.again {
			r.readAhead()
		}
		r.again = true
		b := r.queue[0]
		b.wait()
		if data := b.from(r.pos); len(data) > 0 {
			return data, nil
		}
		if fresh && b.err == nil && b.n > 0 {
			b.readOn()
			if data := b.from(r.pos); len(data) > 0 {
				return data, nil
			}
		}
		// No data. This is current if the block was started by this call. A block
		// that was read ahead may be outdated.
		end, err := b.end(), b.err
		r.forget()
		switch {
		case err == nil && fresh:
			return nil, io.EOF
		case err != nil && fresh && end-r.pos <= DirectAlign:
			return nil, err
		case err != nil: // the error may lie anywhere in the block
			r.small = max(r.small, end)
		}
	}
}

// advance consumes n of the bytes that peek returned.
func (r *Reader) advance(n int) {
	r.pos += int64(n)
	if len(r.queue) == 0 || r.pos < r.queue[0].end() {
		return
	}
	r.spare = append(r.spare, r.queue[0])
	r.queue = r.queue[:copy(r.queue, r.queue[1:])]
	r.window = min(2*r.window, r.max)
}

// forget drops the blocks that were read ahead and starts again with one block.
func (r *Reader) forget() {
	for _, b := range r.queue {
		b.wait()
	}
	r.spare = append(r.spare, r.queue...)
	r.queue = r.queue[:0]
	r.window, r.again = 1, false
}

// readAhead starts blocks after the last block of the queue.
func (r *Reader) readAhead() {
	if r.mode() == inline {
		return
	}
	for len(r.queue) < r.window {
		r.start(r.queue[len(r.queue)-1].end())
	}
}

// start starts to read the block that holds off, up to a block boundary of the
// file.
func (r *Reader) start(off int64) {
	var b *block
	if n := len(r.spare); n > 0 {
		b, r.spare = r.spare[n-1], r.spare[:n-1]
	} else {
		b = newBlock(r)
	}
	size := int64(r.size)
	if off < r.small {
		size = DirectAlign
	}
	b.off = off - off%DirectAlign
	b.want = int(size - b.off%size)
	r.queue = append(r.queue, b)
	b.start()
}

// block is one piece of the file, in flight or read.
type block struct {
	r    *Reader
	mem  []byte // aligned, of the reader's block size
	off  int64
	want int

	busy bool          // done has not been taken
	done chan struct{} // one for each start
	n    int
	err  error

	rings *reactor.Reactor
	op    reactor.Op
	lost  error                // why the rings cannot be used
	over  func(reactor.Result) // b.completed
	read  func()               // b.plain
}

func newBlock(r *Reader) *block {
	b := &block{r: r, done: make(chan struct{}, 1)}
	b.over, b.read = b.completed, b.plain
	return b
}

// end returns the offset in the file at which the block ends.
func (b *block) end() int64 { return b.off + int64(b.want) }

// holds reports whether a position lies in the block.
func (b *block) holds(pos int64) bool { return b.off <= pos && pos < b.end() }

// from returns the data of the block from a position on.
func (b *block) from(pos int64) []byte { return b.mem[min(int(pos-b.off), b.n):b.n] }

// wait waits until the block has been read.
func (b *block) wait() {
	if !b.busy {
		return
	}
	<-b.done
	b.busy = false
	f := b.r.f
	if b.lost != nil {
		b.err = f.pathError("read", b.lost)
		f.fallsBack(b.rings, b.lost)
	}
	b.op, b.rings, b.lost = reactor.Op{}, nil, nil
}

// readMode is how blocks are read.
type readMode int

const (
	inline   readMode = iota // on request
	threaded                 // ahead, each on a goroutine
	queued                   // ahead, through the ring
)

// mode returns how the blocks of the file are read. The kernel's read-ahead is as good as
// a Reader's, but with O_DIRECT there is none.
func (r *Reader) mode() readMode {
	f := r.f
	switch {
	case !f.seekable(), !f.direct && f.sys.opts.Mode != ModeRing:
		return inline
	case r.max == 1 && f.sys.opts.Mode == ModeAuto: // one read at a time
		return inline
	case !f.accelerated() || f.sys.plain.Load() || !f.ringable():
		if !f.direct {
			return inline
		}
		return threaded
	}
	return queued
}

// start starts to read.
func (b *block) start() {
	b.n, b.err, b.busy = 0, nil, true
	f := b.r.f
	if !f.lock.Acquire() {
		b.err = f.pathError("read", os.ErrClosed)
		b.done <- struct{}{}
		return
	}
	if b.mem == nil {
		b.mem = AlignedBuffer(b.r.size)
	}
	mode := b.r.mode()
	if mode == queued && !f.mayCall(reading) {
		mode = inline
	}
	switch mode {
	case inline:
		b.plain()
	case threaded:
		go b.read()
	case queued:
		b.ring()
	}
}

// ring starts to read through the ring.
func (b *block) ring() {
	f := b.r.f
	rings, err := f.sys.reactor()
	switch {
	case err != nil:
		b.finish(0, f.pathError("read", err))
		return
	case rings == nil:
		go b.read()
		return
	}
	b.rings = rings
	b.op = reactor.Op{Buf: b.mem, Keep: f, Bytes: b.want}
	b.op.SQE.Read(uring.Fd(f.fd), b.mem[:b.want], b.off)
	f.submitAs(&b.op.SQE)
	f.ringed.Add(1)
	b.queue()
}

// queue passes the operation to the ring. If the ring is full or has failed, a
// goroutine reads by a plain call.
func (b *block) queue() {
	if _, err := b.rings.Queue(&b.op, b.over); err != nil {
		go b.read()
	}
}

// completed processes the result of the ring.
func (b *block) completed(res reactor.Result) {
	switch errno := res.Errno(); {
	case res.Cause != nil: // the kernel may still write to the memory
		b.mem, b.lost = nil, res.Cause
		b.finish(0, nil)
	case errno == syscall.EAGAIN && b.op.SQE.Raw().Flags&uint8(uring.SQEAsync) == 0: // the kernel could not wait: use a worker thread
		b.op.SQE.SetFlags(uring.SQEAsync)
		b.queue()
	case errno == syscall.EINTR:
		b.queue()
	case errno != 0:
		b.finish(0, b.r.f.pathError("read", errno))
	default:
		b.finish(int(res.Res), nil)
	}
}

// readOn reads the rest of a block of which only a part was read.
func (b *block) readOn() {
	f := b.r.f
	if !f.seekable() || !f.lock.Acquire() {
		return
	}
	defer f.lock.Release()
	b.n, b.err = f.readOn(b.mem[:b.want], b.off, b.n)
}

// plain reads by a plain call.
func (b *block) plain() {
	f := b.r.f
	if f.seekable() {
		b.finish(f.plainCall(reading, b.mem[:b.want], b.off))
		return
	}
	n, err := f.std().ReadAt(b.mem[:b.want], b.off)
	if err == io.EOF {
		err = nil
	}
	b.finish(n, err)
}

// finish ends the read of a block.
func (b *block) finish(n int, err error) {
	b.n, b.err = n, err
	b.r.f.lock.Release()
	b.done <- struct{}{}
}

// readOn goes on after a read of n bytes that ended within a block. As a rule that
// is the end of the file; a file system in user space may read less than it has,
// and does not demand an alignment. The caller has a reference on the file.
func (f *File) readOn(p []byte, off int64, n int) (int, error) {
	for n > 0 && n < len(p) {
		m, err := f.plainCall(reading, p[n:], off+int64(n))
		if f.direct && errors.Is(err, syscall.EINVAL) { // not aligned: the end
			return n, nil
		}
		if m <= 0 || err != nil {
			return n, err
		}
		n += m
	}
	return n, nil
}

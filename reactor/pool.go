// SPDX-License-Identifier: MIT

package reactor

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// BufferPoolOptions describe a pool of buffers.
type BufferPoolOptions struct {
	// Buffers is their number; 0 means 64.
	Buffers int
	// BufferSize is the length of each in bytes, rounded up to whole pages; 0 means
	// 64 KiB.
	BufferSize int
}

func (o BufferPoolOptions) withDefaults() (BufferPoolOptions, error) {
	if o.Buffers <= 0 {
		o.Buffers = 64
	}
	if o.BufferSize <= 0 {
		o.BufferSize = 64 << 10
	}
	if o.BufferSize > math.MaxInt32 || o.Buffers > math.MaxInt/2/sys.PageCeil(o.BufferSize) {
		return o, fmt.Errorf("reactor: a pool of %d buffers of %d bytes", o.Buffers, o.BufferSize)
	}
	o.BufferSize = sys.PageCeil(o.BufferSize)
	return o, nil
}

// BufferPool is a number of equal buffers outside of Go's heap, aligned to
// pages, and registered with every loop as far as the kernel lets: an operation
// that names one in [Op.Buffer] spares the kernel the pinning of its pages.
// Where RLIMIT_MEMLOCK is low only some of the buffers are registered, or none;
// that is no error, but the operation is the ordinary one, and [Stats] counts
// it. All methods may be called concurrently.
type BufferPool struct {
	r      *Reactor
	memory *sys.Region
	index  int // in the tables of the loops; -1 without a place there
	bufs   []Buffer
	pinned int // buffers that are registered with every loop

	mu       sync.Mutex
	spare    []*Buffer
	closed   bool
	finished bool
	back     token        // a buffer came back while somebody waits
	wanted   atomic.Int32 // how many wait
}

// Buffer is one buffer of a pool.
type Buffer struct {
	pool  *BufferPool
	data  []byte
	addr  uint64
	end   int // where it ends in the pool's memory
	claim claim
}

// NewBufferPool makes a pool. It must not be called by a callback of a pinned
// loop, which panics. The error says that the options make no sense, or that
// there is no memory at all; ErrClosed that the reactor was closed.
func (r *Reactor) NewBufferPool(o BufferPoolOptions) (*BufferPool, error) {
	r.mayRegister()
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if r.closed.Load() {
		return nil, ErrClosed
	}
	p := &BufferPool{r: r, back: newToken(), bufs: make([]Buffer, o.Buffers), spare: make([]*Buffer, o.Buffers)}
	if p.memory, err = sys.MapAnon(o.Buffers*o.BufferSize, false); err != nil {
		return nil, fmt.Errorf("reactor: buffer pool: %w", err)
	}
	for i := range p.bufs {
		from, to := i*o.BufferSize, (i+1)*o.BufferSize
		data := p.memory.Bytes()[from:to:to]
		p.bufs[i] = Buffer{pool: p, data: data, addr: sys.SliceAddr(data), end: to}
		p.spare[o.Buffers-1-i] = &p.bufs[i] // those at the front, which are registered first, are used first
	}
	p.pinned = r.pools.register(p) / o.BufferSize
	return p, nil
}

// Registered returns how many of the buffers are registered with every loop.
func (p *BufferPool) Registered() int { return p.pinned }

// TryGet takes a buffer, if there is one.
func (p *BufferPool) TryGet() (*Buffer, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.spare)
	if n == 0 || p.closed {
		return nil, false
	}
	b := p.spare[n-1]
	p.spare = p.spare[:n-1]
	b.claim.hold()
	if n > 1 && p.wanted.Load() > 0 {
		p.back.put()
	}
	return b, true
}

// Get takes a buffer and waits for one while there is none, until ctx is done,
// whose cause it then returns. It returns ErrClosed when the pool is closed. A
// callback must not call it: see TryGet.
func (p *BufferPool) Get(ctx context.Context) (*Buffer, error) {
	if b, ok := p.TryGet(); ok {
		return b, nil
	}
	p.wanted.Add(1)
	defer p.wanted.Add(-1)
	for {
		if b, ok := p.TryGet(); ok {
			return b, nil
		}
		if p.isClosed() {
			p.back.put() // for the next
			return nil, ErrClosed
		}
		select {
		case <-p.back:
		case <-ctx.Done():
			p.back.put() // it may have been meant for us
			return nil, context.Cause(ctx)
		}
	}
}

func (p *BufferPool) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// Close hands out no more buffers, and frees the memory when all have come back:
// at once, or with the last Put or the end of the last operation. Nobody may use
// a buffer's bytes after its Put. A pool may be closed before and after its
// reactor, which does not do it. The second call does nothing. A callback of a
// pinned loop must not call it, which panics.
func (p *BufferPool) Close() error {
	p.r.mayRegister()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.back.put()
	p.finish(false)
	return nil
}

// Bytes returns the buffer's memory, of the length that the pool was made with,
// rounded up. It is the caller's until Put, except for what operations in flight
// use.
func (b *Buffer) Bytes() []byte { return b.data }

// Put gives the buffer back to its pool, which hands it out again only after the
// operations that name it have ended. Putting it twice panics.
func (b *Buffer) Put() {
	last, held := b.claim.drop()
	if !held {
		panic("reactor: a buffer was put twice")
	}
	if last {
		b.free(b.pool.r.opts.Pinned)
	}
}

// free makes a buffer available that nobody needs. briefly says that the caller
// cannot wait for the kernel.
func (b *Buffer) free(briefly bool) {
	p := b.pool
	sys.Poison(b.data)
	p.mu.Lock()
	p.spare = append(p.spare, b)
	closed := p.closed
	p.mu.Unlock()
	if p.wanted.Load() > 0 {
		p.back.put()
	}
	if closed {
		p.finish(briefly)
	}
}

// finish frees the memory of a closed pool, once, when all buffers are back.
func (p *BufferPool) finish(briefly bool) {
	p.mu.Lock()
	now := len(p.spare) == len(p.bufs) && !p.finished
	p.finished = p.finished || now
	p.mu.Unlock()
	switch {
	case !now:
	case briefly:
		p.r.background.run(p.unmap)
	default:
		p.unmap()
	}
}

func (p *BufferPool) unmap() {
	p.r.pools.unregister(p)
	_ = p.memory.Unmap() // it can only fail for a bad address
}

// sendFixed is how an entry says that the data is in a registered buffer.
var sendFixed = new(uring.SQE).SendZCFixed(uring.Fd(0), nil, 0, 0, 0).Raw().Ioprio

// fix makes an entry name the registered buffer, if the loop has it and the
// entry's operation can. The caller holds mu.
func (l *loop) fix(e *uring.SQE, b *Buffer) {
	p, raw := b.pool, e.Raw()
	inside := raw.Addr >= b.addr && raw.Addr-b.addr+uint64(raw.Len) <= uint64(len(b.data))
	if !inside || p.index < 0 || b.end > l.pools[p.index] || raw.Flags&uint8(uring.SQEBufferSelect) != 0 {
		l.stats.plainBuffers.Add(1)
		return
	}
	switch uring.Op(raw.Opcode) {
	case uring.OpRead:
		raw.Opcode = uint8(uring.OpReadFixed)
	case uring.OpWrite:
		raw.Opcode = uint8(uring.OpWriteFixed)
	case uring.OpSendZC:
		raw.Ioprio |= sendFixed
	default:
		l.stats.plainBuffers.Add(1)
		return
	}
	raw.BufIndex = uint16(p.index)
	l.stats.fixedBuffers.Add(1)
}

// SPDX-License-Identifier: MIT

package ufile

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"sync"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
)

// Buffers is a pool of buffers for files opened with O_DIRECT. Its memory is aligned to [DirectAlign]
// bytes and registered with the rings of its System, so that the kernel need not pin pages for
// each operation. [File.ReadAt], [File.WriteAt] and those with a context use that when their memory
// is any part of the pool's buffers and they go through a ring; it saves about a quarter of the
// processor time of a read of 64 KiB. Everything else reads and writes buffers of the pool as
// other memory.
//
// Registered memory is pinned while the rings are open, and counts against RLIMIT_MEMLOCK. Where
// that is low, fewer buffers are registered, or none: see [Buffers.Registered]. The others
// work as well. The memory is part of Go's heap: it stays valid as long as a slice of it, or an
// operation, refers to it, also after Close.
//
// All methods may be called concurrently.
type Buffers struct {
	*registered
	drop runtime.Cleanup // unregisters the memory of a pool that is dropped without Close

	mu     sync.Mutex
	size   int
	free   [][]byte
	inUse  []bool
	closed bool
}

// NewBuffers returns a pool for files of the default system; see [System.NewBuffers].
func NewBuffers(n, size int) (*Buffers, error) { return defaultSystem().NewBuffers(n, size) }

// maxPool is more bytes than a program can address.
const maxPool = min(math.MaxInt/2, 1<<46)

// NewBuffers returns a pool of n buffers of size bytes for files of the system. It opens no rings:
// the memory is registered when they are open. An error means that n or size is not
// positive, or the product too large.
func (s *System) NewBuffers(n, size int) (*Buffers, error) {
	stride := (size + DirectAlign - 1) / DirectAlign * DirectAlign
	if n <= 0 || size <= 0 || stride <= 0 || n > maxPool/stride {
		return nil, fmt.Errorf("ufile: a pool of %d buffers of %d bytes: %w", n, size, syscall.EINVAL)
	}
	b := &Buffers{size: size, inUse: make([]bool, n), free: make([][]byte, n)}
	b.registered = &registered{sys: s, stride: stride, memory: AlignedBuffer(n * stride)}
	for i := range b.free {
		at := (n - 1 - i) * stride // Get takes the last one first
		b.free[i] = b.memory[at : at+size : at+size]
	}
	s.addBuffers(b.registered)
	b.drop = runtime.AddCleanup(b, func(m *registered) { go m.sys.removeBuffers(m) }, b.registered)
	return b, nil
}

// Get returns a buffer of the pool. It never waits: if all are in use, or after Close, it allocates
// aligned memory that is not registered. The buffer belongs to the caller until Put. Its content is
// arbitrary.
func (b *Buffers) Get() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.free) == 0 {
		return AlignedBuffer(b.size)
	}
	p := b.free[len(b.free)-1]
	b.free = b.free[:len(b.free)-1]
	b.inUse[b.index(p)] = true
	return p
}

// Put gives back a buffer that Get returned, or a part of it. The caller must
// not use it any more, and no operation may. After an error that wraps reactor.ErrTaken do not put the
// buffer back. A buffer that is not in use, or not of the pool, is ignored.
func (b *Buffers) Put(p []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := b.index(p); i >= 0 && b.inUse[i] && !b.closed {
		b.inUse[i] = false
		b.free = append(b.free, b.memory[i*b.stride:][:b.size:b.size])
	}
}

// index returns which buffer p begins in, -1 for other memory.
func (b *Buffers) index(p []byte) int {
	if off, ok := sys.Within(p, b.memory); ok && cap(p) > 0 && off < len(b.memory) {
		return off / b.stride
	}
	return -1
}

// Registered returns how many of the buffers are registered now, and why not all of them, "" if all
// are. Rings are opened when reads or writes first need them.
func (b *Buffers) Registered() (n int, reason string) { return b.count() }

// Close unregisters the memory. It does not wait: an operation in flight continues, and keeps its
// memory. Slices of the pool stay valid, and Get works. The second call returns os.ErrClosed.
func (b *Buffers) Close() error {
	b.mu.Lock()
	closed := b.closed
	b.closed, b.free = true, nil
	b.mu.Unlock()
	if closed {
		return os.ErrClosed
	}
	b.drop.Stop()
	b.sys.removeBuffers(b.registered)
	return nil
}

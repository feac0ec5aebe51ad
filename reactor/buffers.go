// SPDX-License-Identifier: MIT

package reactor

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/ringside-io/ringside/uring"
)

// mostBuffers is how many buffers can be registered at a time.
const mostBuffers = 64

// errManyBuffers is the error of one more.
var errManyBuffers = fmt.Errorf("reactor: %d buffers are registered, and no more is possible: register a larger buffer "+
	"and use parts of it: %w", mostBuffers, syscall.ENOBUFS)

// buffers are the registered buffers. Each ring has them at the same index.
type buffers struct {
	mu     sync.Mutex
	memory [mostBuffers][]byte // nil if free; the reactor keeps it reachable
}

// RegisterBuffer pins p for [uring.SQE.ReadFixed] and its relatives on all rings, and returns its
// index for them. The memory of such an operation is any part of p. The kernel then need not pin
// the pages for each operation. p may be up to 1 GiB long, and 64 buffers can be registered at a
// time. p stays reachable and pinned until [Reactor.UnregisterBuffer] or Close.
//
// Pinned memory counts against RLIMIT_MEMLOCK: once for all rings since Linux 6.13, before that
// once for each. If that is too low the error is ENOMEM. With [Options.Restrict] it must list an
// operation that uses a registered buffer. RegisterBuffer may be called while operations are in
// flight. (5.19)
func (r *Reactor) RegisterBuffer(p []byte) (index uint16, err error) {
	b := &r.buffers
	b.mu.Lock()
	defer b.mu.Unlock()
	i := 0
	for ; i < mostBuffers && b.memory[i] != nil; i++ {
	}
	switch {
	case i == mostBuffers:
		return 0, errManyBuffers
	case len(p) == 0:
		return 0, fmt.Errorf("reactor: an empty buffer cannot be registered: %w", syscall.EINVAL)
	}
	for n, l := range r.loops {
		if err := l.setBuffer(i, p, r.loops[0]); err != nil {
			for _, l := range r.loops[:n] {
				_ = l.setBuffer(i, nil, nil)
			}
			return 0, explainBuffer(err)
		}
	}
	b.memory[i] = p
	return uint16(i), nil
}

// UnregisterBuffer frees an index. The memory stays pinned until the operations that the kernel has
// taken with it have ended. Operations that it takes later end with EFAULT.
func (r *Reactor) UnregisterBuffer(index uint16) {
	b := &r.buffers
	b.mu.Lock()
	defer b.mu.Unlock()
	if int(index) >= mostBuffers || b.memory[index] == nil {
		return
	}
	for _, l := range r.loops {
		_ = l.setBuffer(int(index), nil, nil) // a ring that is closed or has failed has no use for it
	}
	b.memory[index] = nil
}

// bufferTable is a ring that can register buffers.
type bufferTable interface {
	RegisterBuffersSparse(n int) error
	UpdateBuffers(first int, bufs [][]byte, tags ...uint64) (int, error)
}

// setBuffer puts a buffer into the ring's table, or removes it if p is nil. A buffer that the ring
// of the loop from has is shared with it (Linux 6.13).
//
// The kernel may have to read p from a swap device, and pins a GiB in some 100 ms. Submissions wait
// for it in the kernel, and those by raw system calls would keep their Ps: so setBuffer holds mu.
func (l *loop) setBuffer(i int, p []byte, from *loop) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	table, ok := l.ring.(bufferTable)
	switch {
	case l.gone:
		return ErrClosed
	case l.failed != nil:
		return l.failed
	case !ok:
		return errors.ErrUnsupported
	case !l.hasTable:
		if err := table.RegisterBuffersSparse(mostBuffers); err != nil {
			return err
		}
		l.hasTable = true
	}
	if from != nil && from != l && l.shareBuffer(i, from) == nil {
		return nil
	}
	_, err := table.UpdateBuffers(i, [][]byte{p})
	return err
}

// shareBuffer puts a buffer of another loop's ring into the ring's table.
func (l *loop) shareBuffer(i int, from *loop) error {
	dst, ok := l.ring.(kernelRing)
	src, too := from.ring.(kernelRing)
	if !ok || !too {
		return errors.ErrUnsupported
	}
	return dst.CloneBuffers(src.Ring, uring.CloneOptions{SrcFirst: i, DstFirst: i, Count: 1, Replace: true})
}

// explainBuffer adds what to change to the error of a registration.
func explainBuffer(err error) error {
	switch {
	case errors.Is(err, syscall.ENOMEM):
		return fmt.Errorf("reactor: %w; registered buffers count as locked memory: raise RLIMIT_MEMLOCK "+
			"(ulimit -l, systemd: LimitMEMLOCK=, docker: --ulimit memlock=), or register less", err)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("reactor: %w; list READ_FIXED or WRITE_FIXED in Options.Restrict", err)
	}
	return fmt.Errorf("reactor: %w", err)
}

// SPDX-License-Identifier: MIT

package reactor

import (
	"errors"
	"sync"
	"syscall"

	"github.com/ringside-io/ringside/uring"
)

// mostPools is how many pools can be registered at a time, one place each in the
// table of every loop.
const mostPools = 64

// mostPinned is the longest buffer that the kernel registers.
const mostPinned = 1 << 30

// pools registers the memory of pools with the loops.
type pools struct {
	mu    sync.Mutex
	r     *Reactor
	taken [mostPools]bool
	// source has the table from which the loops clone theirs, so that memory
	// is pinned once. It is a ring of its own, because that of a pinned loop
	// cannot be cloned from by another thread.
	source  *uring.Ring
	decided bool // whether there is a source
}

// bufferTable is a ring that can have registered buffers.
type bufferTable interface {
	Features() uring.Features
	RegisterBuffersSparse(n int) error
	RegisterBuffers(bufs [][]byte) error
	UpdateBuffers(first int, bufs [][]byte, tags []uint64) (int, error)
	CloneBuffers(src *uring.Ring, o uring.CloneOptions) error
}

// register gives a pool a place in the tables and returns how many bytes from
// its beginning every loop has registered.
func (t *pools) register(p *BufferPool) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.index = t.place(); p.index < 0 {
		return 0
	}
	size := len(p.bufs[0].data)
	all := min(p.memory.Size(), mostPinned/size*size)
	shared := 0 // bytes that the source has
	if src := t.openSource(); src != nil {
		shared = pin(src, p, all)
	}
	least := all
	for i, l := range t.r.loops {
		got := 0
		_ = l.onRing(func(r ring) error {
			table, ok := r.(bufferTable)
			switch {
			case !ok:
			case shared > 0 && t.clone(l, table, p):
				got = shared
			default:
				if i == 0 && shared > 0 {
					t.withdraw(p, !l.hasTable)
					shared = 0
				}
				got = pinWith(l, table, p, all)
			}
			return nil
		})
		l.mu.Lock()
		l.pools[p.index] = got
		l.mu.Unlock()
		least = min(least, got)
	}
	return least
}

// withdraw unpins what no loop can clone: the kernel cannot clone one place of a
// table (before 6.13), or none at all (before 6.12).
func (t *pools) withdraw(p *BufferPool, forGood bool) {
	_, _ = t.source.UpdateBuffers(p.index, [][]byte{nil}, nil)
	if forGood {
		_ = t.source.Close()
		t.source = nil
	}
}

// place takes a free place of the tables, -1 without one. The caller holds mu.
func (t *pools) place() int {
	for i, taken := range t.taken {
		if !taken {
			t.taken[i] = true
			return i
		}
	}
	return -1
}

// openSource returns the ring to clone from, nil where that is not possible or
// not worth it. The caller holds mu.
func (t *pools) openSource() *uring.Ring {
	if !t.decided {
		t.decided = true
		if len(t.r.loops) > 1 {
			t.source = newSource(&t.r.opts)
		}
	}
	return t.source
}

func newSource(o *Options) *uring.Ring {
	src, err := uring.Open(uring.Options{Entries: 1, Restrict: o.restrictions()})
	if err != nil {
		return nil
	}
	if openBufferTable(src) != nil {
		_ = src.Close()
		return nil
	}
	return src
}

// pinWith registers up to want bytes of a pool with one loop, and returns how
// many. The caller holds mu and may use the ring.
func pinWith(l *loop, table bufferTable, p *BufferPool, want int) int {
	if !l.hasTable {
		if openBufferTable(table) != nil {
			return 0
		}
		l.hasTable = true
	}
	return pin(table, p, want)
}

// clone makes a loop share what the source has registered of a pool: with the
// whole table at first (6.12), with one place of it later (6.13).
func (t *pools) clone(l *loop, table bufferTable, p *BufferPool) bool {
	var o uring.CloneOptions
	if l.hasTable {
		o = uring.CloneOptions{SrcFirst: p.index, DstFirst: p.index, Count: 1, Replace: true}
	}
	if table.CloneBuffers(t.source, o) != nil {
		return false
	}
	l.hasTable = true
	return true
}

// openBufferTable makes an empty table. Before 5.13, when places could not be
// empty, registering waited for the operations in flight, and so perhaps for
// ever.
func openBufferTable(t bufferTable) error {
	if t.Features()&uring.FeatRsrcTags == 0 {
		return errors.ErrUnsupported
	}
	err := t.RegisterBuffersSparse(mostPools)
	if errors.Is(err, syscall.EINVAL) { // before 5.19
		err = t.RegisterBuffers(make([][]byte, mostPools))
	}
	return err
}

// pin registers up to want bytes of a pool, or as many whole buffers as the
// kernel lets, and returns how many bytes.
func pin(t bufferTable, p *BufferPool, want int) int {
	size := len(p.bufs[0].data)
	for want > 0 {
		_, err := t.UpdateBuffers(p.index, [][]byte{p.memory.Bytes()[:want]}, nil)
		if err == nil {
			return want
		}
		if !errors.Is(err, syscall.ENOMEM) {
			return 0
		}
		want = want / 2 / size * size
	}
	return 0
}

// unregister takes the memory of a pool, which nobody uses, out of the tables.
func (t *pools) unregister(p *BufferPool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.index < 0 {
		return
	}
	for _, l := range t.r.loops {
		// A ring that has failed or is closed has let go of it.
		_ = l.onRing(func(r ring) error {
			l.mu.Lock()
			had := l.pools[p.index] > 0
			l.pools[p.index] = 0
			l.mu.Unlock()
			if had {
				_, err := r.(bufferTable).UpdateBuffers(p.index, [][]byte{nil}, nil)
				return err
			}
			return nil
		})
	}
	if t.source != nil {
		_, _ = t.source.UpdateBuffers(p.index, [][]byte{nil}, nil)
	}
	t.taken[p.index] = false
}

// close frees the source.
func (t *pools) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	src := t.source
	t.source, t.decided = nil, true
	if src == nil {
		return nil
	}
	return src.Close()
}

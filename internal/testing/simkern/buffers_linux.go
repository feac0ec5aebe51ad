// SPDX-License-Identifier: MIT

package simkern

import (
	"encoding/binary"
	"sync/atomic"
	"syscall"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// group is a ring of provided buffers.
type group struct {
	id      uint16
	entries []abi.Buf      // the user's
	first   *atomic.Uint32 // the id of entry 0 and the tail
	head    uint16         // of what was taken
	seen    uint16         // of what is known to be published
	has     []provided     // published and not taken
}

type provided struct {
	addr uint64
	n    uint32
	id   uint16
}

// provide registers a group.
func (r *ring) provide(reg *abi.BufReg) (int, syscall.Errno) {
	switch n := reg.RingEntries; {
	case reg.Flags != 0 || n == 0 || n&(n-1) != 0 || n > 1<<15 || reg.RingAddr == 0:
		return -1, syscall.EINVAL
	case r.groups[reg.Bgid] != nil:
		return -1, syscall.EEXIST
	}
	g := &group{id: reg.Bgid, entries: sys.At[abi.Buf](reg.RingAddr, int(reg.RingEntries))}
	const tailWord = 12
	g.first = &sys.At[atomic.Uint32](reg.RingAddr+tailWord, 1)[0]
	r.groups[reg.Bgid] = g
	return 0, 0
}

// withdraw ends a group.
func (r *ring) withdraw(id uint16) (int, syscall.Errno) {
	g := r.groups[id]
	if g == nil {
		return -1, syscall.ENOENT
	}
	for _, o := range r.k.ops {
		if o.ring == r && o.from == g && o.state != ending {
			r.k.violation("group %d is unregistered while %v is in flight", id, o)
		}
	}
	delete(r.groups, id)
	return 0, 0
}

// look notes what was published, and uses the right to it.
func (g *group) look(r *ring) {
	var halves [4]byte
	binary.NativeEndian.PutUint32(halves[:], g.first.Load())
	tail := binary.NativeEndian.Uint16(halves[2:])
	for ; g.seen != tail; g.seen++ {
		i := g.seen & uint16(len(g.entries)-1)
		id := binary.NativeEndian.Uint16(halves[:])
		if i != 0 {
			id = g.entries[i].Bid
		}
		p := provided{g.entries[i].Addr, g.entries[i].Len, id}
		for _, x := range g.has {
			if x.id == p.id {
				r.k.violation("buffer %d of group %d is given back twice", p.id, g.id)
			}
		}
		g.has = append(g.has, p)
		r.k.garbage(sys.At[byte](p.addr, int(p.n)))
	}
}

// take takes the first of them.
func (g *group) take() {
	g.has = g.has[1:]
	g.head++
}

// garbage overwrites memory that is the kernel's.
func (k *Kernel) garbage(p []byte) {
	x := k.dice.Uint64()
	for i := range p {
		p[i] = byte(x>>(i&7*8)) + byte(i)
	}
}

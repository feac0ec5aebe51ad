// SPDX-License-Identifier: MIT

package scenario

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync"
)

// Block is how many bytes of a file are written together, and are judged
// together.
const Block = 64

// Cells is the model of a file that any number of goroutines read and write: for
// each block, which of the writes to it a read may still see. A write that has
// failed, or was cancelled, may have been done or not until it has ended; one
// that ended without error was done.
type Cells struct {
	name   uint64 // makes the same write to two files two different ones
	mu     sync.Mutex
	clock  uint64
	stamp  uint64
	blocks [][]wrote
	reads  map[uint64]struct{} // the beginnings of those that are on their way
}

// wrote is a write to one block.
type wrote struct {
	stamp      uint64 // 0: the zeros that were there at first
	begin, end uint64 // end 0: on its way
	sure       bool
}

// NewCells returns the model of a file of zeros.
func NewCells(name uint64, blocks int) *Cells {
	c := &Cells{name: name, blocks: make([][]wrote, blocks), reads: make(map[uint64]struct{}), clock: 1}
	for i := range c.blocks {
		c.blocks[i] = []wrote{{end: 1, sure: true}}
	}
	return c
}

// Len returns how many blocks the file has.
func (c *Cells) Len() int { return len(c.blocks) }

// Range returns the blocks of a step, which lie within the file.
func (c *Cells) Range(at, n int) (first, count int) {
	n = min(n, len(c.blocks))
	return at % (len(c.blocks) - n + 1), n
}

// Fill fills p with what the write with the given stamp writes to the blocks
// from first on.
func (c *Cells) Fill(p []byte, stamp uint64, first int) {
	for i := 0; i < len(p); i += Block {
		c.block(p[i:i+Block], stamp, first+i/Block)
	}
}

// block fills one block.
func (c *Cells) block(p []byte, stamp uint64, at int) {
	if stamp == 0 {
		clear(p)
		return
	}
	x := c.seed(stamp, at)
	for i := 0; i < Block; i += 8 {
		binary.LittleEndian.PutUint64(p[i:], x)
		x = x*0x9e3779b97f4a7c15 + 1
	}
}

// seed returns the first word of a block.
func (c *Cells) seed(stamp uint64, at int) uint64 { return mix(stamp ^ mix(c.name<<32+uint64(at))) }

// mix spreads a number over 64 bits.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// BeginWrite says that a write begins and returns its stamp, from which [Fill]
// makes its bytes.
func (c *Cells) BeginWrite(first, n int) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock++
	c.stamp++
	for i := first; i < first+n; i++ {
		c.prune(i)
		c.blocks[i] = append(c.blocks[i], wrote{stamp: c.stamp, begin: c.clock})
	}
	return c.stamp
}

// EndWrite says that a write has ended: of its n blocks the first were written,
// then come some of which nobody knows, and the rest was not.
func (c *Cells) EndWrite(stamp uint64, first, n, sure, unsure int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock++
	for i := range n {
		all := c.blocks[first+i]
		for j := range all {
			if all[j].stamp != stamp {
				continue
			}
			if i >= sure+unsure {
				c.blocks[first+i] = append(all[:j], all[j+1:]...)
				break
			}
			all[j].end, all[j].sure = c.clock, i < sure
		}
	}
}

// prune forgets the writes to a block that no read can see any more.
func (c *Cells) prune(i int) {
	oldest := c.clock
	if len(c.blocks[i]) < 4 {
		return
	}
	for begin := range c.reads {
		oldest = min(oldest, begin)
	}
	keep := c.blocks[i][:0]
	last := lastSure(c.blocks[i], oldest)
	for _, w := range c.blocks[i] {
		if w.end == 0 || w.end >= last {
			keep = append(keep, w)
		}
	}
	c.blocks[i] = keep
}

// lastSure returns when the latest of the writes began that are done and ended
// before a moment: what ended before that cannot be seen after the moment.
func lastSure(all []wrote, moment uint64) uint64 {
	var last uint64
	for _, w := range all {
		if w.sure && w.end < moment {
			last = max(last, w.begin)
		}
	}
	return last
}

// BeginRead says that a read begins and returns when.
func (c *Cells) BeginRead() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock++
	c.reads[c.clock] = struct{}{}
	return c.clock
}

// EndRead judges what a read has brought that began at a moment, from a block
// on. The last block may be there in part.
func (c *Cells) EndRead(begin uint64, first int, p []byte) error {
	defer c.forget(begin)
	return c.judgeRead(begin, first, p)
}

// forget ends a read.
func (c *Cells) forget(begin uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.reads, begin)
}

// judgeRead judges a part of what a read has brought.
func (c *Cells) judgeRead(begin uint64, first int, p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := 0; i < len(p); i += Block {
		if err := c.judge(begin, first+i/Block, p[i:min(i+Block, len(p))]); err != nil {
			return err
		}
	}
	return nil
}

// judge looks at what a read brought of one block: each byte must be one that a
// write put there which the read may see.
func (c *Cells) judge(begin uint64, at int, p []byte) error {
	if at >= len(c.blocks) {
		return fmt.Errorf("block %d lies behind the end", at)
	}
	last := lastSure(c.blocks[at], begin)
	var want [Block]byte
	for _, w := range c.blocks[at] {
		if (w.end == 0 || w.end >= last) && c.begins(p, w.stamp, at) {
			if c.block(want[:], w.stamp, at); bytes.Equal(p, want[:len(p)]) {
				return nil
			}
		}
	}
	if c.parts(last, at, p) {
		return nil
	}
	return fmt.Errorf("block %d holds %x, which no write put there that this read may see: %+v, read begun at %d", at, p, c.blocks[at], begin)
}

// begins says whether p may be what a write wrote, by its first bytes.
func (c *Cells) begins(p []byte, stamp uint64, at int) bool {
	if len(p) < 8 {
		return true
	}
	var first uint64
	if stamp != 0 {
		first = c.seed(stamp, at)
	}
	return binary.LittleEndian.Uint64(p) == first
}

// parts says whether p consists of parts of what several writes wrote that none
// has replaced which began at last.
func (c *Cells) parts(last uint64, at int, p []byte) bool {
	var want [Block]byte
	var known [Block]bool
	left := len(p)
	for _, w := range c.blocks[at] {
		if w.end != 0 && w.end < last {
			continue
		}
		c.block(want[:], w.stamp, at)
		for i := range p {
			if !known[i] && p[i] == want[i] {
				known[i] = true
				left--
			}
		}
	}
	return left == 0
}

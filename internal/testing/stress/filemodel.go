// SPDX-License-Identifier: MIT

package stress

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
)

// Block is the number of bytes of a file that are written and checked together.
const Block = 64

// FileModel is the model of a file that any number of goroutines read and write. It records
// for each block which of the writes to it a read may still see. A write that failed or was
// cancelled may have been done or not; a write that ended without error was done.
type FileModel struct {
	name   uint64 // makes equal writes to two files differ
	mu     sync.Mutex
	clock  uint64
	stamp  uint64
	blocks [][]wrote // in the order of their stamps, and so of their beginnings
	due    []int     // the length at which each of them is pruned again
	reads  reading
}

// wrote is a write to one block.
type wrote struct {
	stamp      uint64 // 0: the initial zeros
	begin, end uint64 // end 0: in progress
	sure       bool
}

// leastDue is the smallest length at which a list is pruned.
const leastDue = 4

// NewFileModel returns the model of a file of zeros.
func NewFileModel(name uint64, blocks int) *FileModel {
	c := &FileModel{name: name, blocks: make([][]wrote, blocks), due: make([]int, blocks), clock: 1}
	for i := range c.blocks {
		c.blocks[i], c.due[i] = []wrote{{end: 1, sure: true}}, leastDue
	}
	return c
}

// Len returns how many blocks the file has.
func (c *FileModel) Len() int { return len(c.blocks) }

// Range returns the blocks of a step, which lie within the file.
func (c *FileModel) Range(at, n int) (first, count int) {
	n = min(n, len(c.blocks))
	return at % (len(c.blocks) - n + 1), n
}

// Fill fills p with the content that the write with the given stamp writes to the blocks
// from first on.
func (c *FileModel) Fill(p []byte, stamp uint64, first int) {
	for i := 0; i < len(p); i += Block {
		c.block(p[i:i+Block], stamp, first+i/Block)
	}
}

// block fills one block. The first word encodes the stamp, depending on the block's place.
// The other words are computed from the first.
func (c *FileModel) block(p []byte, stamp uint64, at int) {
	if stamp == 0 {
		clear(p)
		return
	}
	x := stamp ^ c.place(at)
	binary.LittleEndian.PutUint64(p, x)
	x = mix(x)
	for i := 8; i < Block; i += 8 {
		binary.LittleEndian.PutUint64(p[i:], x)
		x = x*0x9e3779b97f4a7c15 + 1
	}
}

// place hashes the number of a block.
func (c *FileModel) place(at int) uint64 { return mix(c.name<<32 + uint64(at)) }

// stampOf returns the stamp that the first word of a block encodes.
func (c *FileModel) stampOf(p []byte, at int) uint64 {
	first := binary.LittleEndian.Uint64(p)
	if first == 0 {
		return 0
	}
	return first ^ c.place(at)
}

// mix spreads a number over 64 bits.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// BeginWrite records the beginning of a write and returns its stamp, from which [Fill]
// makes its bytes.
func (c *FileModel) BeginWrite(first, n int) uint64 {
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

// EndWrite records the end of a write: of its n blocks the first sure were
// written, the next unsure may have been, and the rest was not.
func (c *FileModel) EndWrite(stamp uint64, first, n, sure, unsure int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock++
	for i := range n {
		all := c.blocks[first+i]
		j, found := find(all, stamp)
		switch {
		case !found:
		case i >= sure+unsure:
			c.blocks[first+i] = slices.Delete(all, j, j+1)
		default:
			all[j].end, all[j].sure = c.clock, i < sure
		}
	}
}

// find looks for a write among those to a block.
func find(all []wrote, stamp uint64) (int, bool) {
	return slices.BinarySearchFunc(all, stamp, func(w wrote, stamp uint64) int { return cmp.Compare(w.stamp, stamp) })
}

// prune removes the writes to a block that no read can see any more, when these may be
// half of all.
func (c *FileModel) prune(i int) {
	if len(c.blocks[i]) < c.due[i] {
		return
	}
	keep := c.blocks[i][:0]
	last := lastSure(c.blocks[i], c.reads.oldest(c.clock))
	for _, w := range c.blocks[i] {
		if w.visible(last) {
			keep = append(keep, w)
		}
	}
	c.blocks[i], c.due[i] = keep, max(2*len(keep), leastDue)
}

// visible reports whether a read may see the write that lastSure does not rule out.
func (w *wrote) visible(last uint64) bool { return w.end == 0 || w.end >= last }

// lastSure returns the latest begin of the writes that were done and ended before a moment.
// Writes that ended before that begin cannot be seen after the moment.
func lastSure(all []wrote, moment uint64) uint64 {
	for i := len(all) - 1; i >= 0; i-- {
		if w := &all[i]; w.sure && w.end < moment {
			return w.begin
		}
	}
	return 0
}

// BeginRead records the beginning of a read and returns its time.
func (c *FileModel) BeginRead() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock++
	c.reads.add(c.clock)
	return c.clock
}

// EndRead checks the bytes of a read that began at a moment, from block first on. The last
// block may be incomplete.
func (c *FileModel) EndRead(begin uint64, first int, p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.reads.remove(begin)
	return c.judgeAll(begin, first, p)
}

// forget ends a read.
func (c *FileModel) forget(begin uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads.remove(begin)
}

// judgeRead checks the bytes of a read.
func (c *FileModel) judgeRead(begin uint64, first int, p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.judgeAll(begin, first, p)
}

func (c *FileModel) judgeAll(begin uint64, first int, p []byte) error {
	for i := 0; i < len(p); i += Block {
		if err := c.judge(begin, first+i/Block, p[i:min(i+Block, len(p))]); err != nil {
			return err
		}
	}
	return nil
}

// judge checks the bytes of one block: each must come from a write that the read may see.
func (c *FileModel) judge(begin uint64, at int, p []byte) error {
	if at >= len(c.blocks) {
		return fmt.Errorf("block %d lies behind the end", at)
	}
	all := c.blocks[at]
	last := lastSure(all, begin)
	if len(p) >= 8 {
		i, found := find(all, c.stampOf(p, at))
		if found && all[i].visible(last) && c.wrote(p, all[i].stamp, at) {
			return nil
		}
	}
	if c.parts(last, at, p) {
		return nil
	}
	return fmt.Errorf("block %d holds %x, which no write put there that this read may see: %+v, read begun at %d", at, p, all, begin)
}

// wrote reports whether p is the content of a write.
func (c *FileModel) wrote(p []byte, stamp uint64, at int) bool {
	var want [Block]byte
	c.block(want[:], stamp, at)
	return bytes.Equal(p, want[:len(p)])
}

// parts reports whether p consists of parts of several writes that are still visible given
// last.
func (c *FileModel) parts(last uint64, at int, p []byte) bool {
	var want [Block]byte
	var known [Block]bool
	left := len(p)
	for _, w := range c.blocks[at] {
		if !w.visible(last) {
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

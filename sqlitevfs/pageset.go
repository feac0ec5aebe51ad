// SPDX-License-Identifier: MIT

package sqlitevfs

const (
	setBlock = 512 // pages
	word     = 64
)

// pageSet is a set of page numbers, most of which lie side by side.
type pageSet struct {
	blocks map[uint32]*[setBlock / word]uint64
	n      int
}

func split(page uint32) (block uint32, i int, bit uint64) {
	in := page % setBlock
	return page / setBlock, int(in / word), 1 << (in % word)
}

func (s *pageSet) has(page uint32) bool {
	if s.n == 0 {
		return false
	}
	block, i, bit := split(page)
	b := s.blocks[block]
	return b != nil && b[i]&bit != 0
}

// add says whether the page was not there before.
func (s *pageSet) add(page uint32) bool {
	block, i, bit := split(page)
	b := s.blocks[block]
	if b == nil {
		if s.blocks == nil {
			s.blocks = map[uint32]*[setBlock / word]uint64{}
		}
		b = new([setBlock / word]uint64)
		s.blocks[block] = b
	}
	if b[i]&bit != 0 {
		return false
	}
	b[i] |= bit
	s.n++
	return true
}

// remove says whether the page was there.
func (s *pageSet) remove(page uint32) bool {
	if !s.has(page) {
		return false
	}
	block, i, bit := split(page)
	b := s.blocks[block]
	b[i] &^= bit
	s.n--
	if *b == ([setBlock / word]uint64{}) {
		delete(s.blocks, block)
	}
	return true
}

// clear empties the set and returns how many pages there were.
func (s *pageSet) clear() int {
	n := s.n
	s.blocks, s.n = nil, 0
	return n
}

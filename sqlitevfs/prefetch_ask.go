// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"context"
	"runtime/trace"
	"sync/atomic"
)

// ask makes the kernel read a page, unless the page was already requested.
func (pf *prefetcher) ask(page uint32) {
	if pf.mark(page) {
		pf.get(page, 1)
	}
}

// mark records that a page is fetched, and reports whether it was not fetched yet.
func (pf *prefetcher) mark(page uint32) bool {
	if !pf.asked.add(page) {
		return false
	}
	pf.f.db.fetched.Add(1)
	return true
}

// wasRead records that a page was read, and reports whether it had been fetched.
func (pf *prefetcher) wasRead(page uint32, as *atomic.Uint64) bool {
	if pf.table.planned.n > 0 {
		pf.table.planned.remove(page)
	}
	if !pf.asked.remove(page) {
		return false
	}
	pf.used++
	as.Add(1)
	return true
}

// dropUnread counts the pages that were fetched and not read as waste.
func (pf *prefetcher) dropUnread() {
	n := pf.asked.clear()
	pf.vain += n
	pf.f.db.waste.Add(uint64(n))
}

// get makes the kernel read n adjacent pages.
func (pf *prefetcher) get(page uint32, n int) {
	if pf.traces {
		defer trace.StartRegion(context.Background(), "sqlitevfs.prefetch").End()
	}
	willNeed(descriptor(pf.fd), int64(page-1)*int64(pf.page), int64(n)*int64(pf.page))
}

// open opens the descriptor that pages are fetched with.
func (pf *prefetcher) open() bool {
	if pf.fd == nil && !pf.failed {
		fd, err := openAhead(pf.f.name, pf.f.fd)
		if err != nil {
			pf.failed = true
			return false
		}
		pf.fd = fd
	}
	return pf.fd != nil
}

// contiguous reports whether pages are so close together that the kernel recognises
// a sequential read.
func contiguous(pages []uint32) bool {
	if len(pages) < firstWindow { // too few to tell
		return false
	}
	close := 0
	for i, p := range pages[1:] {
		if d := int64(p) - int64(pages[i]); d == 1 || d == 2 {
			close++
		}
	}
	return 4*close >= 3*(len(pages)-1)
}

const (
	setBlock = 512 // pages
	word     = 64
)

// pageSet is a set of page numbers, most of which are adjacent.
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

// add adds a page and reports whether it was not in the set.
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

// remove removes a page and reports whether it was in the set.
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

// clear empties the set and returns how many pages it had.
func (s *pageSet) clear() int {
	n := s.n
	s.blocks, s.n = nil, 0
	return n
}

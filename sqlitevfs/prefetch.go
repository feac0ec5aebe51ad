// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"os"
	"syscall"
)

// How much a scan has to show, and how far ahead is read.
const (
	defaultDepth = 64
	maxDepth     = 1024
	firstWindow  = 8   // pages fetched when a scan is recognised; then twice as many each time
	enough       = 3   // leaves read in order, not all of them cached, are a scan
	gap          = 8   // leaves between two that SQLite reads may be in its cache
	nodes        = 8   // interior pages that are remembered
	judged       = 256 // from so many unread pages on, more evidence is required
)

// prefetcher reads leaves of B-trees into the page cache before a scan reads them.
// It sees every page that SQLite reads: interior pages contain the leaves and their
// order, and reads that wait for the disk show that fetching is worth while. The
// prefetcher keeps no page contents, so it cannot serve stale data. Wrong
// assumptions about the tree do no harm: pages that were moved are fetched
// unnecessarily.
type prefetcher struct {
	f     *file
	depth int
	room  int    // bytes that may be fetched of the rest of a table
	page  int    // bytes, 0 until known
	on    bool   // reads may ask the page cache first
	buf   []byte // a page, for parsing

	nodes [nodes]node
	clock uint64
	scan  *node // what is being fetched for
	table tableFetch

	asked   pageSet // were fetched and not read since
	counted bool    // the scan is in Stats.Scans
	used    int     // pages that were fetched and read
	vain    int     // and not read

	fd     *os.File // to fetch through
	failed bool     // there is none
}

// node is an interior page and how far its children have been read.
type node struct {
	page     uint32 // 0 for none
	used     uint64 // by clock
	parsed   bool
	children []uint32
	at       int // index of the child read last, -1 before the first
	run      int // children read in order
	step     int // 1, or -1 for a scan from the end
	upto     int // index behind the last child that was dealt with, in direction of step
	window   int
	entered  bool // the scan is here, or will be next
	inner    bool // the children are interior pages themselves
	spilled  int  // how many were fetched below the interior page that follows
}

// newPrefetcher returns nil where pages cannot or must not be fetched.
func newPrefetcher(f *file, o Options) *prefetcher {
	if o.Prefetch == Off {
		return nil
	}
	if f.fd < 0 {
		f.db.noPrefetch.Store(new("not the default VFS's files, or not Linux"))
		return nil
	}
	pf := &prefetcher{f: f, depth: o.PrefetchDepth, room: o.PrefetchBytes, on: true}
	if pf.depth == 0 {
		pf.depth = defaultDepth
	}
	if pf.room == 0 {
		pf.room = defaultBytes
	}
	return pf
}

// prefetchState returns how pages are fetched, or why they are not.
func (d *database) prefetchState() string {
	if why := d.noPrefetch.Load(); why != nil {
		return "off: " + *why
	}
	if d.opts.Prefetch == Off {
		return "off"
	}
	return "posix_fadvise"
}

func (pf *prefetcher) close() {
	pf.forget()
	if pf.fd != nil {
		pf.fd.Close()
	}
}

// forget drops the known pages of the B-trees.
func (pf *prefetcher) forget() {
	for i := range pf.nodes {
		pf.drop(&pf.nodes[i])
	}
	pf.dropUnread()
	pf.table.reset()
}

// readAt reads for SQLite.
func (pf *prefetcher) readAt(p []byte, off int64) (int, error) {
	if !pf.on {
		return pf.f.File.ReadAt(p, off)
	}
	n, errno := preadNoWait(pf.f.fd, p, off)
	if errno == 0 && n == len(p) {
		if len(p) == pf.page {
			pf.hit(p, off)
		} else if off == 0 {
			pf.page = pageSizeOf(p)
		}
		return n, nil
	}
	switch errno {
	case 0, syscall.EAGAIN, syscall.EINTR:
	default:
		pf.on = false
		pf.f.db.noPrefetch.Store(new("the file system cannot tell what is cached: " + errno.Error()))
	}
	missed := errno == syscall.EAGAIN && len(p) == pf.page
	if missed {
		pf.f.db.misses.Add(1)
		pf.miss(pf.number(off))
	}
	n, err := pf.f.File.ReadAt(p, off)
	if n == len(p) && err == nil {
		if missed && interior(p, pf.number(off)) {
			pf.note(pf.number(off))
		} else if off == 0 {
			pf.page = pageSizeOf(p)
		}
	}
	return n, err
}

func (pf *prefetcher) number(off int64) uint32 { return uint32(off/int64(pf.page)) + 1 }

// hit is called for each page that was cached. It must cost nothing unless a scan
// is going on.
func (pf *prefetcher) hit(p []byte, off int64) {
	if pf.scan != nil || pf.asked.n > 0 {
		page := pf.number(off)
		pf.wasRead(page, &pf.f.db.hits)
		if pf.scan != nil {
			pf.follow(page)
		}
	}
	if p[0] == interiorTable || p[0] == interiorIndex || off == 0 {
		if page := pf.number(off); interior(p, page) {
			pf.note(page)
		}
	}
}

// note remembers an interior page that was read. Its children are parsed when one
// of its leaves is missed, or a scan continues below it.
func (pf *prefetcher) note(page uint32) {
	pf.clock++
	n := pf.known(page)
	n.used = pf.clock
	n.parsed = n.parsed && (n == pf.scan || n.entered) // it may have changed; a scan goes on with what it knows
	if up, at := pf.above(page); up != nil {
		up.inner, up.at, up.used = true, at, pf.clock
	}
	pf.continueBelow(n)
}

// known returns the node of an interior page, or replaces the oldest one by it.
func (pf *prefetcher) known(page uint32) *node {
	oldest := &pf.nodes[0]
	for i := range pf.nodes {
		n := &pf.nodes[i]
		if n.page == page {
			return n
		}
		if n != pf.scan && (n.used < oldest.used || oldest == pf.scan) {
			oldest = n
		}
	}
	pf.drop(oldest)
	*oldest = node{page: page, used: pf.clock, children: oldest.children[:0], at: -1}
	return oldest
}

// drop forgets an interior page.
func (pf *prefetcher) drop(n *node) {
	if pf.scan == n {
		pf.scan = nil
	}
	*n = node{children: n.children[:0]}
}

// parse reads the children of an interior page, from the page cache.
func (pf *prefetcher) parse(n *node) bool {
	if n.parsed {
		return len(n.children) > 0
	}
	n.parsed = true
	before := len(n.children)
	n.children = pf.below(n.children[:0], n.page)
	if len(n.children) != before {
		n.at, n.run = -1, 0
	}
	return len(n.children) > 0
}

// below appends the children of an interior page, if that is in the page cache.
func (pf *prefetcher) below(dst []uint32, page uint32) []uint32 {
	if len(pf.buf) != pf.page {
		pf.buf = make([]byte, pf.page)
	}
	n, errno := preadNoWait(pf.f.fd, pf.buf, int64(page-1)*int64(pf.page))
	if errno != 0 || n != pf.page {
		return dst
	}
	return children(dst, pf.buf, page)
}

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

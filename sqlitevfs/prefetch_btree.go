// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"encoding/binary"
	"slices"
)

// The part of SQLite's file format that determines the next pages of a scan:
// https://www.sqlite.org/fileformat2.html#b_tree_pages
const (
	fileHeader     = 100 // bytes, before the B-tree page header on page 1
	interiorIndex  = 2
	interiorTable  = 5
	interiorHeader = 12
	minPage        = 512
	maxPage        = 65536
	magic          = "SQLite format 3\x00"
)

// pageSizeOf returns the page size in the header of a database, 0 if p is no header.
func pageSizeOf(p []byte) int {
	if len(p) < 18 || string(p[:len(magic)]) != magic {
		return 0
	}
	n := int(binary.BigEndian.Uint16(p[16:]))
	if n == 1 {
		n = maxPage
	}
	if n < minPage || n&(n-1) != 0 {
		return 0
	}
	return n
}

// interior reports whether a page is an interior page of a B-tree by its type byte. An
// overflow page may look the same.
func interior(p []byte, page uint32) bool {
	if page == 1 {
		p = p[fileHeader:]
	}
	return p[0] == interiorTable || p[0] == interiorIndex
}

// children appends the numbers of the pages below an interior page in the order of their
// keys. It appends nothing if the page is not well formed.
func children(dst []uint32, p []byte, page uint32) []uint32 {
	h := p
	if page == 1 {
		h = p[fileHeader:]
	}
	if h[0] != interiorTable && h[0] != interiorIndex {
		return dst
	}
	cells := int(binary.BigEndian.Uint16(h[3:]))
	pointers := h[interiorHeader:]
	if 2*cells > len(pointers) {
		return dst
	}
	old := len(dst)
	for i := range cells {
		at := int(binary.BigEndian.Uint16(pointers[2*i:]))
		if at < interiorHeader || at+4 > len(p) {
			return dst[:old]
		}
		dst = append(dst, binary.BigEndian.Uint32(p[at:]))
	}
	dst = append(dst, binary.BigEndian.Uint32(h[8:]))
	for _, c := range dst[old:] {
		if c < 2 {
			return dst[:old]
		}
	}
	return dst
}

// node is an interior page and how far its children have been read.
type node struct {
	page     uint32 // 0 for none
	used     uint64 // by clock
	parsed   bool
	children []uint32
	at       int  // index of the child read last, -1 before the first
	run      int  // children read in order
	step     int  // 1, or -1 for a scan from the end
	upto     int  // index behind the last child that was fetched or left to the kernel, in direction of step
	window   int  // children to be fetched ahead
	entered  bool // the scan is below this page, or will be next
	inner    bool // the children are interior pages themselves
	spilled  int  // how many were fetched below the next interior page
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

// above finds the parent of a page among the interior pages that were parsed, and
// the index of the page in it.
func (pf *prefetcher) above(page uint32) (*node, int) {
	for i := range pf.nodes {
		n := &pf.nodes[i]
		if n.page == 0 || !n.parsed {
			continue
		}
		if at := slices.Index(n.children, page); at >= 0 {
			return n, at
		}
	}
	return nil, 0
}

// parent finds the parent of a page, parsing interior pages if necessary, and the
// index of the page in it.
func (pf *prefetcher) parent(page uint32) (*node, int) {
	for i := range pf.nodes {
		n := &pf.nodes[i]
		if n.page == 0 || n.page == page || !pf.parse(n) {
			continue
		}
		if n.at >= 0 { // usually the page is the next child
			for _, at := range [...]int{n.at + 1, n.at - 1, n.at} {
				if at >= 0 && at < len(n.children) && n.children[at] == page {
					return n, at
				}
			}
		}
		if at := slices.Index(n.children, page); at >= 0 {
			return n, at
		}
	}
	return nil, 0
}

// read records that a child was read.
func (n *node) read(at int) {
	switch d := at - n.at; {
	case n.at < 0:
		n.run, n.step = 1, 1
	case d == 0:
	case d > 0 && d <= gap && (n.step > 0 || n.run <= 1):
		n.run, n.step = n.run+1, 1
	case d < 0 && -d <= gap && (n.step < 0 || n.run <= 1):
		n.run, n.step = n.run+1, -1
	default:
		n.run = 1
	}
	n.at = at
}

// finished reports whether the scan has reached the last children.
func (n *node) finished() bool {
	if n.step < 0 {
		return n.at <= gap
	}
	return n.at >= len(n.children)-1-gap
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

// below appends the children of an interior page, if the page is in the page cache.
func (pf *prefetcher) below(dst []uint32, page uint32) []uint32 {
	if len(pf.buf) != pf.page {
		pf.buf = make([]byte, pf.page)
	}
	n, errno := readCached(pf.f.fd, pf.buf, int64(page-1)*int64(pf.page))
	if errno != 0 || n != pf.page {
		return dst
	}
	return children(dst, pf.buf, page)
}

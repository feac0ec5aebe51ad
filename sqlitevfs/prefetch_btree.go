// SPDX-License-Identifier: MIT

package sqlitevfs

import "encoding/binary"

// The part of SQLite's file format that tells which pages come next:
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

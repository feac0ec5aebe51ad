// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestPageSet(t *testing.T) {
	var s pageSet
	want := map[uint32]bool{}
	rnd := rand.New(rand.NewPCG(5, 6))
	for i := range 20000 {
		page := uint32(rnd.IntN(3000)) * uint32(1+rnd.IntN(2)*700000)
		if s.has(page) != want[page] || s.n != len(want) {
			t.Fatalf("step %d: page %d, %d pages of %d", i, page, s.n, len(want))
		}
		if rnd.IntN(3) > 0 {
			if s.add(page) == want[page] {
				t.Fatalf("step %d: add %d", i, page)
			}
			want[page] = true
		} else {
			if s.remove(page) != want[page] {
				t.Fatalf("step %d: remove %d", i, page)
			}
			delete(want, page)
		}
	}
	if s.clear() != len(want) || s.n != 0 || len(s.blocks) != 0 {
		t.Error("clear")
	}
}

// TestPagesThatAreNotWellFormed calls children for malformed pages, as in a damaged
// database or an overflow page. There must be no children, and no read beyond the page.
func TestPagesThatAreNotWellFormed(t *testing.T) {
	page := func(cells, at int, child, right uint32) []byte {
		p := make([]byte, minPage)
		p[0] = interiorTable
		binary.BigEndian.PutUint16(p[3:], uint16(cells))
		binary.BigEndian.PutUint32(p[8:], right)
		binary.BigEndian.PutUint16(p[interiorHeader:], uint16(at))
		if at+4 <= len(p) {
			binary.BigEndian.PutUint32(p[at:], child)
		}
		return p
	}
	known := []uint32{7}
	if got := children(known, page(1, 400, 3, 4), 2); !slices.Equal(got, []uint32{7, 3, 4}) {
		t.Errorf("a page with two children: got %d", got)
	}
	leaf := page(1, 400, 3, 4)
	leaf[0] = 13
	for what, p := range map[string][]byte{
		"a leaf":                         leaf,
		"more cells than fit":            page(300, 400, 3, 4),
		"a cell in the header":           page(1, interiorHeader-1, 3, 4),
		"a cell behind the page":         page(1, minPage, 3, 4),
		"a cell that crosses the end":    page(1, minPage-3, 3, 4),
		"a child that is the first page": page(1, 400, 1, 4),
		"no rightmost child":             page(1, 400, 3, 0),
	} {
		if got := children(known, p, 2); !slices.Equal(got, known) {
			t.Errorf("%s: %d", what, got)
		}
	}
	header := func(size uint16) []byte {
		return binary.BigEndian.AppendUint16([]byte(magic), size)
	}
	for _, k := range []struct {
		head []byte
		want int
	}{{header(512), 512}, {header(4096), 4096}, {header(1), maxPage}, {header(256), 0}, {header(1000), 0}, {header(0), 0}, {header(4096)[:17], 0}, {make([]byte, 100), 0}} {
		if got := pageSizeOf(k.head); got != k.want {
			t.Errorf("the page size in % x is %d, want %d", k.head, got, k.want)
		}
	}
}

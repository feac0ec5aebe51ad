// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"math/rand/v2"
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

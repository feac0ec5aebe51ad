// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"math"
	"slices"
)

// When the rest of a table is fetched, and how.
const (
	sweepShare   = 20        // of a hundred interior pages below the root, that were walked in order
	sweepPace    = 8         // pages for each that the scan reads
	sweepCall    = 32        // pages in a call at most, which every kernel's read-ahead allows
	sweepLeast   = 4         // pages that a call counts for at least
	sweepWait    = 16        // pages that the scan reads while interior pages come,
	sweepWaits   = 16        // and how often it waits for those that are late
	defaultBytes = 256 << 20 // before they are read at most

	inFlight = 256 * sweepCall // pages that the kernel may still be reading
	arrived  = 256             // pages that the scan reads while the last ones come
	tooMany  = 64              // pages gone before they were read
)

// sweeping fetches what is left of a table in the order of the file, in which
// leaves that are scattered are neighbours of each other. It goes on only as the
// scan does.
type sweeping struct {
	walked  int    // interior pages that the scan has left behind, in order
	whole   bool   // they were enough
	off     bool   // what was fetched did not stay
	up      uint32 // the interior page above those that are swept
	upto    int    // index of its child behind the last one that was dealt with, in direction of the scan
	wait    int    // pages to be read before inner is looked at
	waits   int    // how often it still may be looked at again
	inner   []uint32
	pages   []uint32 // to be fetched, sorted
	planned pageSet  // the same, without those that were read
	credit  int      // pages that may be fetched now
	behind  uint32   // page behind those that were fetched last
	after   int      // pages that the scan has read since
	lost    int      // pages that were gone when the scan came to them
}

func (s *sweeping) reset() {
	s.planned.clear()
	*s = sweeping{planned: s.planned}
}

// entered is told when a scan goes on below the next interior page.
func (a *ahead) entered(n *node) {
	s := &a.sweep
	if i := slices.Index(s.inner, n.page); i >= 0 { // late: the scan itself fetches what is below
		s.inner = slices.Delete(s.inner, i, i+1)
	}
	up, at := a.parent(n.page)
	if up == nil || s.off {
		return
	}
	s.walked++
	if !s.whole && (!a.counted || 100*s.walked < sweepShare*len(up.children)) {
		return
	}
	s.whole = true
	if s.up != up.page || (s.upto-at)*n.step <= 0 {
		s.up, s.upto = up.page, at+n.step
	}
	a.plan(up, at, n)
}

// plan fetches the next interior pages, as many as there is room for the leaves
// below them, when the scan has done half of those before.
func (a *ahead) plan(up *node, at int, n *node) {
	s := &a.sweep
	left := (s.upto-at)*n.step - 1
	count := min(a.room, freeMemory()/2) / (a.page * len(n.children))
	if s.wait > 0 || len(s.pages) > 0 || 2*left > count || !a.open() {
		return
	}
	for ; count > 0 && s.upto >= 0 && s.upto < len(up.children); count-- {
		s.inner = append(s.inner, up.children[s.upto])
		s.upto += n.step
	}
	if len(s.inner) == 0 {
		return
	}
	slices.Sort(s.inner)
	for _, page := range s.inner {
		a.ask(page)
	}
	s.wait, s.waits = sweepWait, sweepWaits
}

// gather collects the leaves below the interior pages that have been fetched,
// unless they lie in the order of the scan anyhow or are no neighbours. While
// some of these pages have not come, as from a disk that is busy, it waits.
func (a *ahead) gather() {
	s := &a.sweep
	s.pages = s.pages[:0]
	for _, page := range s.inner {
		before := len(s.pages)
		s.pages = a.below(s.pages, page)
		if late := len(s.pages) == before; late && s.waits > 0 {
			s.pages = s.pages[:0]
			s.wait, s.waits = sweepWait, s.waits-1
			return
		}
	}
	s.inner = s.inner[:0]
	forth := a.scan.step > 0 && contiguous(s.pages)
	slices.Sort(s.pages)
	if forth || !dense(s.pages) {
		s.pages = s.pages[:0]
		return
	}
	for _, page := range s.pages {
		if !a.asked.has(page) {
			s.planned.add(page)
		}
	}
	s.credit, s.behind, s.after = 0, 0, 0
}

// dense says whether at least every other page follows its predecessor.
func dense(sorted []uint32) bool {
	n := 0
	for i, page := range sorted {
		if i > 0 && page == sorted[i-1]+1 {
			n++
		}
	}
	return 2*n >= len(sorted)
}

// advance fetches some more, as the scan has read a page.
func (a *ahead) advance() {
	s := &a.sweep
	if s.wait > 0 {
		if s.wait--; s.wait == 0 {
			a.gather()
		}
	}
	for s.credit += sweepPace; len(s.pages) > 0; {
		n := s.next()
		if n > 0 {
			cost := max(n, sweepLeast)
			if cost > s.credit {
				return
			}
			s.credit -= cost
			a.fetchRun(s.pages[:n])
		}
		s.pages = s.pages[max(n, 1):]
	}
	s.credit = 0
	if s.behind == 0 {
		return
	}
	if s.after++; s.after == arrived {
		s.behind = math.MaxUint32
	}
}

// fetchRun fetches pages that lie side by side.
func (a *ahead) fetchRun(pages []uint32) {
	for _, page := range pages {
		a.sweep.planned.remove(page)
		a.mark(page)
	}
	a.get(pages[0], len(pages))
	a.sweep.behind = pages[len(pages)-1] + 1
}

// next returns how many pages come next that lie side by side, 0 if the first
// one is not wanted any more.
func (s *sweeping) next() int {
	n := 0
	for n < min(len(s.pages), sweepCall) && s.pages[n] == s.pages[0]+uint32(n) && s.planned.has(s.pages[n]) {
		n++
	}
	return n
}

// gone is told of a page that was fetched and is not there. When many are gone
// that must have come, memory is short: better less is fetched.
func (a *ahead) gone(page uint32) {
	s := &a.sweep
	if s.off || uint64(page)+inFlight >= uint64(s.behind) {
		return
	}
	if s.lost++; s.lost >= tooMany {
		a.settle()
		s.reset()
		s.off = true
	}
}

// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"math"
	"slices"
)

// When the rest of a table is fetched, and how.
const (
	tableShare   = 20        // percent of the interior pages below the root, walked in order, before the rest is fetched
	tablePace    = 8         // pages fetched for each page that the scan reads
	tableCall    = 32        // most pages in a call; the read-ahead of every kernel allows them
	tableLeast   = 4         // least number of pages that a call counts for
	tableWait    = 16        // pages that the scan reads while the kernel reads interior pages,
	tableWaits   = 16        // and how many times the scan waits again for late ones
	defaultBytes = 256 << 20 // most bytes that are fetched before the scan reads them

	inFlight = 256 * tableCall // pages that the kernel may still be reading
	arrived  = 256             // pages that the scan reads while the kernel reads the last fetched ones
	tooMany  = 64              // pages evicted before they were read, after which fetching ends
)

// tableFetch fetches the rest of a table in file order, in which scattered leaves
// are adjacent. It advances only with the scan.
type tableFetch struct {
	walked  int      // interior pages that the scan has left behind, in order
	whole   bool     // walked was enough: the rest of the table is fetched
	off     bool     // fetched pages were evicted: nothing more is fetched
	up      uint32   // the parent of the interior pages being fetched
	upto    int      // index of its child behind the last one that was fetched, in direction of the scan
	wait    int      // pages that the scan reads before gather is called
	waits   int      // how many times gather may still wait again
	inner   []uint32 // interior pages that were requested
	pages   []uint32 // to be fetched, sorted
	planned pageSet  // the same, without pages that were read
	credit  int      // pages that may be fetched now
	behind  uint32   // page behind the last fetched one
	after   int      // pages that the scan has read since the last fetch
	lost    int      // pages that were evicted before the scan read them
}

func (s *tableFetch) reset() {
	s.planned.clear()
	*s = tableFetch{planned: s.planned}
}

// entered is called when a scan continues below the next interior page.
func (pf *prefetcher) entered(n *node) {
	s := &pf.table
	if i := slices.Index(s.inner, n.page); i >= 0 { // late: the scan itself fetches the leaves below
		s.inner = slices.Delete(s.inner, i, i+1)
	}
	up, at := pf.parent(n.page)
	if up == nil || s.off {
		return
	}
	s.walked++
	if !s.whole && (!pf.counted || 100*s.walked < tableShare*len(up.children)) {
		return
	}
	s.whole = true
	if s.up != up.page || (s.upto-at)*n.step <= 0 {
		s.up, s.upto = up.page, at+n.step
	}
	pf.plan(up, at, n)
}

// plan fetches the next interior pages, as many as there is room for the leaves below them.
// It does so when the scan has done half of the interior pages that were fetched before.
func (pf *prefetcher) plan(up *node, at int, n *node) {
	s := &pf.table
	left := (s.upto-at)*n.step - 1
	count := min(pf.room, freeMemory()/2) / (pf.page * len(n.children))
	if s.wait > 0 || len(s.pages) > 0 || 2*left > count || !pf.open() {
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
		pf.ask(page)
	}
	s.wait, s.waits = tableWait, tableWaits
}

// gather collects the leaves below the interior pages that have been fetched. It leaves them
// out if they already lie in the order of the scan, or if too few of them are adjacent. If an
// interior page is still being read, for example from a busy disk, gather waits again.
func (pf *prefetcher) gather() {
	s := &pf.table
	s.pages = s.pages[:0]
	for _, page := range s.inner {
		before := len(s.pages)
		s.pages = pf.below(s.pages, page)
		if late := len(s.pages) == before; late && s.waits > 0 {
			s.pages = s.pages[:0]
			s.wait, s.waits = tableWait, s.waits-1
			return
		}
	}
	s.inner = s.inner[:0]
	forth := pf.scan.step > 0 && contiguous(s.pages)
	slices.Sort(s.pages)
	if forth || !dense(s.pages) {
		s.pages = s.pages[:0]
		return
	}
	for _, page := range s.pages {
		if !pf.asked.has(page) {
			s.planned.add(page)
		}
	}
	s.credit, s.behind, s.after = 0, 0, 0
}

// dense reports whether at least half of the pages follow their predecessor.
func dense(sorted []uint32) bool {
	n := 0
	for i, page := range sorted {
		if i > 0 && page == sorted[i-1]+1 {
			n++
		}
	}
	return 2*n >= len(sorted)
}

// advance fetches more pages after the scan has read one.
func (pf *prefetcher) advance() {
	s := &pf.table
	if s.wait > 0 {
		if s.wait--; s.wait == 0 {
			pf.gather()
		}
	}
	for s.credit += tablePace; len(s.pages) > 0; {
		n := s.next()
		if n > 0 {
			cost := max(n, tableLeast)
			if cost > s.credit {
				return
			}
			s.credit -= cost
			pf.fetchRun(s.pages[:n])
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

// fetchRun fetches adjacent pages.
func (pf *prefetcher) fetchRun(pages []uint32) {
	for _, page := range pages {
		pf.table.planned.remove(page)
		pf.mark(page)
	}
	pf.get(pages[0], len(pages))
	pf.table.behind = pages[len(pages)-1] + 1
}

// next returns how many adjacent pages are to be fetched next, 0 if the first one was read
// in the meantime.
func (s *tableFetch) next() int {
	n := 0
	for n < min(len(s.pages), tableCall) && s.pages[n] == s.pages[0]+uint32(n) && s.planned.has(s.pages[n]) {
		n++
	}
	return n
}

// evicted is called for a page that was fetched and is not cached. If many pages were evicted
// before they were read, memory is scarce, and fetching ends.
func (pf *prefetcher) evicted(page uint32) {
	s := &pf.table
	if s.off || uint64(page)+inFlight >= uint64(s.behind) {
		return
	}
	if s.lost++; s.lost >= tooMany {
		pf.dropUnread()
		s.reset()
		s.off = true
	}
}

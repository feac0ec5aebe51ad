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
	tableLate    = 64        // leaves that a scan must have read in any case before the rest is fetched
	tableCall    = 32        // most pages in a call,
	tableBytes   = 128 << 10 // and bytes; the read-ahead of every kernel allows them
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
	read    int      // leaves that the scan has read in order
	due     int      // leaves to read before the rest of the table is fetched, 0 until estimated
	nodes   int      // interior pages that the scan has entered,
	kids    int      // and pages below them
	whole   bool     // so many were read: the rest of the table is fetched
	off     bool     // fetched pages were evicted: nothing more is fetched
	left    int      // interior pages whose leaves were fetched and that the scan has not reached
	end     bool     // the rest of the table was planned to its end
	alone   bool     // the planned leaves are not worth fetching in file order
	below   bool     // gather is to include the leaves below the scan's own interior page
	above   bool     // pages above the interior pages are being read
	wait    int      // pages that the scan reads before gather or plan is called
	waits   int      // how many times it may still wait again
	inner   []uint32 // interior pages that were requested
	pages   []uint32 // to be fetched, sorted
	planned pageSet  // the same, without pages that were read
	credit  int      // pages that may be fetched now
	behind  uint32   // page behind the last fetched one
	after   int      // pages that the scan has read since the last fetch
	lost    int      // pages that were evicted before the scan read them
	fed     pageSet  // interior pages below which feed has fetched
}

func (s *tableFetch) reset() {
	s.planned.clear()
	s.fed.clear()
	*s = tableFetch{planned: s.planned, fed: s.fed}
}

// entered is called when a scan continues below the next interior page.
func (pf *prefetcher) entered(n *node) {
	s := &pf.table
	if i := slices.Index(s.inner, n.page); i >= 0 { // late: the scan itself fetches the leaves below
		s.inner = slices.Delete(s.inner, i, i+1)
	}
	if s.off {
		return
	}
	s.left = max(s.left-1, 0)
	s.nodes, s.kids = s.nodes+1, s.kids+len(n.children)
	s.due = pf.estimate(n)
	if s.whole {
		pf.plan(n)
	}
	if !s.whole || s.alone || s.left == 0 {
		pf.feed(n)
	}
}

// estimate returns how many leaves a scan reads before the rest of the table is fetched. It marks
// the known pages above n as used, the root last: a scan needs it longest.
func (pf *prefetcher) estimate(n *node) int {
	leaves := pf.fan(n)
	for up, levels := n, len(pf.nodes); levels > 0; levels-- {
		if up, _ = pf.parent(up.page); up == nil {
			break
		}
		pf.clock++
		up.used = pf.clock
		leaves = min(leaves*len(up.children), math.MaxInt32)
	}
	return max(leaves*tableShare/100, tableLate)
}

// fan returns how many leaves an interior page has in the mean.
func (pf *prefetcher) fan(n *node) int {
	if s := &pf.table; s.nodes > 0 {
		return max(s.kids/s.nodes, 1)
	}
	return max(len(n.children), 1)
}

// walked counts leaves that a scan has read, and fetches the rest of the table if they are enough.
func (pf *prefetcher) walked(leaves int) {
	s := &pf.table
	s.read += leaves
	if s.whole || s.off || !pf.counted {
		return
	}
	if s.due == 0 {
		s.due = pf.estimate(pf.scan)
	}
	if s.read >= s.due {
		s.whole, s.below = true, true
		pf.plan(pf.scan)
	}
}

// following appends the pages behind a page on its level of the tree, in the order of the scan and
// at most k. If pages above them are not in the page cache, it fetches those, appends the pages
// before, and reports true.
func (pf *prefetcher) following(dst []uint32, page uint32, k, step, levels int) ([]uint32, bool) {
	up, at := pf.parent(page)
	if up == nil || levels == 0 {
		return dst, false
	}
	most := len(dst) + k
	for at += step; at >= 0 && at < len(up.children) && len(dst) < most; at += step {
		dst = append(dst, up.children[at])
	}
	if len(dst) == most {
		return dst, false
	}
	fan := len(up.children)
	next, late := pf.following(nil, up.page, (most-len(dst)+fan-1)/fan, step, levels-1)
	for i, p := range next {
		before := len(dst)
		if dst = pf.below(dst, p); len(dst) == before {
			missing := slices.Clone(next[i:])
			slices.Sort(missing)
			for _, p := range missing {
				pf.ask(p)
			}
			late = true
			break
		}
		if step < 0 {
			slices.Reverse(dst[before:])
		}
	}
	return dst[:min(len(dst), most)], late
}

// feed fetches leaves beyond the next interior page where interior pages have few children, as in
// an index with long keys: the interior pages twice as far ahead as leaves.
func (pf *prefetcher) feed(n *node) {
	s := &pf.table
	if !pf.counted || len(n.children) >= pf.depth || !pf.open() {
		return
	}
	count := (pf.depth + len(n.children) - 1) / len(n.children)
	next, _ := pf.following(nil, n.page, 2*count, n.step, len(pf.nodes))
	var leaves []uint32
	for i, page := range next {
		if s.fed.has(page) {
			continue
		}
		if before := len(leaves); i < count {
			if leaves = pf.below(leaves, page); len(leaves) > before {
				s.fed.add(page)
				if n.step < 0 {
					slices.Reverse(leaves[before:])
				}
				continue
			}
		}
		pf.ask(page)
	}
	if n.step > 0 && contiguous(leaves) {
		return
	}
	for _, page := range leaves {
		pf.ask(page)
	}
}

// plan fetches the next interior pages, as many as there is room for the leaves below them.
// It does so when the scan has done half of the interior pages that were fetched before.
func (pf *prefetcher) plan(n *node) {
	s := &pf.table
	count := min(pf.room, freeMemory()/2) / (pf.page * pf.fan(n))
	if s.below {
		count = max(count-1, 0)
	}
	if s.end || s.wait > 0 || len(s.pages) > 0 || 2*s.left > count || !pf.open() {
		return
	}
	next, late := pf.following(nil, n.page, max(count, s.left), n.step, len(pf.nodes))
	if !s.above {
		s.waits = tableWaits
	}
	if s.above = late && s.waits > 0; s.above {
		s.wait, s.waits = tableWait, s.waits-1
		return
	}
	s.end = len(next) < max(count, s.left) && !late
	s.inner = append(s.inner[:0], next[min(s.left, len(next)):]...)
	if len(s.inner) == 0 && !s.below {
		return
	}
	s.left = len(next)
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
	if n := pf.scan; s.below {
		s.below = false
		for at := n.upto; at >= 0 && at < len(n.children); at += n.step {
			s.pages = append(s.pages, n.children[at])
		}
	}
	forth := pf.scan.step > 0 && contiguous(s.pages)
	slices.Sort(s.pages)
	if s.alone = forth || !dense(s.pages); s.alone {
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
			if s.above {
				pf.plan(pf.scan)
			} else {
				pf.gather()
			}
		}
	}
	for s.credit += tablePace; len(s.pages) > 0; {
		n := s.next(pf.page)
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
func (s *tableFetch) next(pageSize int) int {
	n := 0
	for n < min(len(s.pages), tableCall, tableBytes/pageSize) && s.pages[n] == s.pages[0]+uint32(n) && s.planned.has(s.pages[n]) {
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

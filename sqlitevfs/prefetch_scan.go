// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"slices"
	"sync/atomic"
)

// miss is called for each page that is not cached, before it is read.
func (pf *prefetcher) miss(page uint32) {
	if pf.wasRead(page, &pf.f.db.late) {
		pf.evicted(page)
	}
	if pf.scan != nil && pf.follow(page) {
		return
	}
	n, at := pf.parent(page)
	if n == nil {
		return
	}
	pf.clock++
	n.used = pf.clock
	n.read(at)
	if n == pf.scan { // it goes on elsewhere, or is another one
		pf.scan, n.entered = nil, false
	}
	if n.run >= pf.evidence() && !n.inner {
		pf.begin(n)
	}
}

// evidence returns how many leaves must have been read in order: more if most of
// the pages fetched so far were not read.
func (pf *prefetcher) evidence() int {
	if pf.vain > max(judged, pf.used) {
		return 8 * enough
	}
	return enough
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
		if n.at >= 0 { // mostly it is the next one
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

// begin starts fetching for a scan that was recognised.
func (pf *prefetcher) begin(n *node) {
	pf.dropUnread()
	pf.counted = false
	pf.table.reset()
	if pf.scan != nil {
		pf.scan.entered = false
	}
	pf.scan = n
	n.entered = true
	n.upto = n.at + n.step
	n.window = firstWindow
	pf.fetch(n)
}

// continueBelow continues a scan below the next interior page when SQLite has
// reached it.
func (pf *prefetcher) continueBelow(n *node) {
	s := pf.scan
	if s == nil || s == n || !s.finished() || !pf.parse(n) {
		return
	}
	pf.scan = n
	pf.enter(n, s)
	s.entered = false
	pf.fetch(n)
	pf.entered(n)
}

// enter prepares a node as the next one of a scan.
func (pf *prefetcher) enter(n, s *node) {
	if n.entered && n.step == s.step { // it is, see beyond
		return
	}
	n.entered = true
	n.step, n.run, n.window, n.at = s.step, enough, s.window, -1
	if n.step < 0 {
		n.at = len(n.children)
	}
	n.upto = n.at + n.step
}

// finished reports whether the scan has reached the last children.
func (n *node) finished() bool {
	if n.step < 0 {
		return n.at <= gap
	}
	return n.at >= len(n.children)-1-gap
}

// follow advances the scan if the page belongs to it, and reports whether it does.
func (pf *prefetcher) follow(page uint32) bool {
	n := pf.scan
	for d := 1; d <= gap; d++ {
		at := n.at + d*n.step
		if at < 0 || at >= len(n.children) {
			return false
		}
		if n.children[at] != page {
			continue
		}
		n.at = at
		n.run++
		if (n.upto-at)*n.step <= n.window/2 {
			n.window = min(2*n.window, pf.depth)
			pf.fetch(n)
		}
		pf.advance()
		return true
	}
	return false
}

// fetch has the kernel read the children in the window that were not fetched yet.
// Children that are contiguous in the file are left to the kernel's own
// read-ahead, which is better at that.
func (pf *prefetcher) fetch(n *node) {
	if (n.upto-n.at)*n.step <= 0 {
		n.upto = n.at + n.step
	}
	want := n.at + n.step*(n.window+1)
	end := min(max(want, -1), len(n.children))
	if (end-n.upto)*n.step > 0 {
		if n.step < 0 || !contiguous(n.children[max(n.at, 0):end]) {
			if !pf.open() {
				return
			}
			pf.began()
			for i := n.upto; i != end; i += n.step {
				pf.ask(n.children[i])
			}
		}
		n.upto = end
	}
	if beyond := (want - end) * n.step; n == pf.scan && beyond >= n.spilled+n.window/4 {
		n.spilled = beyond
		pf.beyond(n, beyond)
	}
}

// began counts the scan, once.
func (pf *prefetcher) began() {
	if !pf.counted {
		pf.counted = true
		pf.f.db.scans.Add(1)
	}
}

// ask has the kernel read a page, unless it was asked before.
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

// get has the kernel read pages that lie side by side.
func (pf *prefetcher) get(page uint32, n int) {
	willNeed(descriptor(pf.fd), int64(page-1)*int64(pf.page), int64(n)*int64(pf.page))
}

// beyond continues below the next interior page once that is in the page cache;
// until then it fetches that page.
func (pf *prefetcher) beyond(n *node, count int) {
	up, at := pf.above(n.page)
	if up == nil {
		return
	}
	if at += n.step; at < 0 || at >= len(up.children) {
		return
	}
	up.used = pf.clock
	next := pf.known(up.children[at])
	next.used = pf.clock
	if !pf.parse(next) {
		next.parsed = false
		if pf.counted && pf.open() {
			pf.ask(next.page)
		}
		return
	}
	pf.enter(next, n)
	next.window = count
	pf.fetch(next)
	next.window = n.window
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

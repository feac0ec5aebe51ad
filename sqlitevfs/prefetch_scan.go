// SPDX-License-Identifier: MIT

package sqlitevfs

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
	if n == pf.scan { // the scan continues elsewhere, or this is another scan
		pf.scan, n.entered = nil, false
	}
	if n.run >= pf.evidence() && !n.inner {
		pf.begin(n)
	}
}

// evidence returns how many leaves must have been read in order. It returns more if most of
// the pages fetched so far were not read.
func (pf *prefetcher) evidence() int {
	if pf.vain > max(judged, pf.used) {
		return 8 * enough
	}
	return enough
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
	if s == nil || s == n || !s.finished() || !pf.parse(n) || pf.levels(n) < pf.levels(s) {
		return
	}
	pf.scan = n
	pf.enter(n, s)
	s.entered = false
	pf.fetch(n)
	pf.entered(n)
}

// levels returns how many known pages are above an interior page.
func (pf *prefetcher) levels(n *node) int {
	for i := range pf.nodes {
		if n, _ = pf.parent(n.page); n == nil {
			return i
		}
	}
	return len(pf.nodes)
}

// enter prepares a node as the next one of a scan.
func (pf *prefetcher) enter(n, s *node) {
	if n.entered && n.step == s.step { // beyond has prepared it
		return
	}
	n.entered = true
	n.step, n.run, n.window, n.at = s.step, enough, s.window, -1
	if n.step < 0 {
		n.at = len(n.children)
	}
	n.upto = n.at + n.step
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
		pf.walked(d)
		pf.advance()
		return true
	}
	return false
}

// fetch makes the kernel read the children in the window that were not fetched yet.
// Children that are contiguous in the file are left to the kernel's read-ahead, which is
// better for these.
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

// beyond continues below the next interior page once that page is in the page cache. Until
// then it fetches the page.
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

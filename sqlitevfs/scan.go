// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"slices"
	"sync/atomic"
)

// miss is told of a page that has to be waited for, before the wait.
func (a *ahead) miss(page uint32) {
	if a.took(page, &a.f.db.late) {
		a.gone(page)
	}
	if a.scan != nil && a.follow(page) {
		return
	}
	n, at := a.parent(page)
	if n == nil {
		return
	}
	a.clock++
	n.used = a.clock
	n.read(at)
	if n == a.scan { // it goes on elsewhere, or is another one
		a.scan, n.entered = nil, false
	}
	if n.run >= a.evidence() && !n.inner {
		a.begin(n)
	}
}

// evidence is how many leaves must have been read in order: more when what was
// fetched was of little use.
func (a *ahead) evidence() int {
	if a.vain > max(judged, a.used) {
		return 8 * enough
	}
	return enough
}

// above finds the interior page that a page is below, and where, among those
// that were looked at.
func (a *ahead) above(page uint32) (*node, int) {
	for i := range a.nodes {
		n := &a.nodes[i]
		if n.page == 0 || !n.parsed {
			continue
		}
		if at := slices.Index(n.children, page); at >= 0 {
			return n, at
		}
	}
	return nil, 0
}

// parent finds the interior page that a page is below, and where.
func (a *ahead) parent(page uint32) (*node, int) {
	for i := range a.nodes {
		n := &a.nodes[i]
		if n.page == 0 || n.page == page || !a.parse(n) {
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

// read takes note that a child was read.
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

// begin fetches for a scan that was recognised.
func (a *ahead) begin(n *node) {
	a.settle()
	a.counted = false
	a.sweep.reset()
	if a.scan != nil {
		a.scan.entered = false
	}
	a.scan = n
	n.entered = true
	n.upto = n.at + n.step
	n.window = firstWindow
	a.fetch(n)
}

// adopt lets a scan go on below the next interior page, when SQLite has come to
// it.
func (a *ahead) adopt(n *node) {
	s := a.scan
	if s == nil || s == n || !s.finished() || !a.parse(n) {
		return
	}
	a.scan = n
	a.enter(n, s)
	s.entered = false
	a.fetch(n)
	a.entered(n)
}

// enter prepares a node as the next one of a scan.
func (a *ahead) enter(n, s *node) {
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

// finished says whether the scan has come to the last children.
func (n *node) finished() bool {
	if n.step < 0 {
		return n.at <= gap
	}
	return n.at >= len(n.children)-1-gap
}

// follow moves the scan on when it reads a page of it.
func (a *ahead) follow(page uint32) bool {
	n := a.scan
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
			n.window = min(2*n.window, a.depth)
			a.fetch(n)
		}
		a.advance()
		return true
	}
	return false
}

// fetch has the kernel read the children of the window that are not dealt with.
// Those that lie one behind the other in the file are left to the kernel's own
// read-ahead, which is better at that.
func (a *ahead) fetch(n *node) {
	if (n.upto-n.at)*n.step <= 0 {
		n.upto = n.at + n.step
	}
	want := n.at + n.step*(n.window+1)
	end := min(max(want, -1), len(n.children))
	if (end-n.upto)*n.step > 0 {
		if n.step < 0 || !contiguous(n.children[max(n.at, 0):end]) {
			if !a.open() {
				return
			}
			a.began()
			for i := n.upto; i != end; i += n.step {
				a.ask(n.children[i])
			}
		}
		n.upto = end
	}
	if beyond := (want - end) * n.step; n == a.scan && beyond >= n.spilled+n.window/4 {
		n.spilled = beyond
		a.beyond(n, beyond)
	}
}

// began counts the scan, once.
func (a *ahead) began() {
	if !a.counted {
		a.counted = true
		a.f.db.scans.Add(1)
	}
}

// ask has the kernel read a page, unless it was asked before.
func (a *ahead) ask(page uint32) {
	if a.mark(page) {
		a.get(page, 1)
	}
}

// mark takes note that a page is fetched, and says whether it was not yet.
func (a *ahead) mark(page uint32) bool {
	if !a.asked.add(page) {
		return false
	}
	a.f.db.fetched.Add(1)
	return true
}

// took takes note that a page was read, and says whether it was fetched.
func (a *ahead) took(page uint32, as *atomic.Uint64) bool {
	if a.sweep.planned.n > 0 {
		a.sweep.planned.remove(page)
	}
	if !a.asked.remove(page) {
		return false
	}
	a.used++
	as.Add(1)
	return true
}

// settle gives up what was fetched and not read.
func (a *ahead) settle() {
	n := a.asked.clear()
	a.vain += n
	a.f.db.waste.Add(uint64(n))
}

// get has the kernel read pages that lie side by side.
func (a *ahead) get(page uint32, n int) {
	willNeed(descriptor(a.fd), int64(page-1)*int64(a.page), int64(n)*int64(a.page))
}

// beyond goes on below the interior page that follows, once that is in the page
// cache; until then it is fetched.
func (a *ahead) beyond(n *node, count int) {
	up, at := a.above(n.page)
	if up == nil {
		return
	}
	if at += n.step; at < 0 || at >= len(up.children) {
		return
	}
	up.used = a.clock
	next := a.known(up.children[at])
	next.used = a.clock
	if !a.parse(next) {
		next.parsed = false
		if a.counted && a.open() {
			a.ask(next.page)
		}
		return
	}
	a.enter(next, n)
	next.window = count
	a.fetch(next)
	next.window = n.window
}

// contiguous says whether pages follow each other so closely that the kernel
// sees a sequential read.
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

// open opens what pages are fetched through.
func (a *ahead) open() bool {
	if a.fd == nil && !a.failed {
		fd, err := openAhead(a.f.name, a.f.fd)
		if err != nil {
			a.failed = true
			return false
		}
		a.fd = fd
	}
	return a.fd != nil
}

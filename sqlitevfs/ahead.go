// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"os"
	"syscall"
)

// Evidence and depth.
const (
	defaultDepth = 64
	maxDepth     = 1024
	firstWindow  = 8   // pages fetched when a scan is recognised; then twice as many each time
	enough       = 3   // leaves read in order, not all of them cached, that make a scan
	gap          = 8   // leaves that may have been in SQLite's cache, or the kernel's, between two
	nodes        = 8   // interior pages that are remembered
	judged       = 256 // pages fetched in vain before that is held against further ones
)

// ahead reads leaves of B-trees into the page cache before a scan comes to them.
// It sees every page that SQLite reads: interior pages tell which leaves there
// are and in which order, reads that have to wait for the disk tell that they
// are worth fetching. Nothing is kept of what is read, so that nothing stale can
// be served, and what it believes of the trees may be wrong without harm: pages
// that were moved are fetched in vain.
type ahead struct {
	f     *file
	depth int
	room  int    // bytes that may be fetched of the rest of a table
	page  int    // bytes, 0 until known
	on    bool   // reads may ask the page cache first
	buf   []byte // a page, for parsing

	nodes [nodes]node
	clock uint64
	scan  *node // what is being fetched for
	sweep sweeping

	asked   pageSet // were fetched and not read since
	counted bool    // the scan is in Stats.Scans
	used    int     // pages that were fetched and read
	vain    int     // and not read

	fd     *os.File // to fetch through
	failed bool     // there is none
}

// node is an interior page and how far its children have been read.
type node struct {
	page     uint32 // 0 for none
	used     uint64 // by clock
	parsed   bool
	children []uint32
	at       int // index of the child read last, -1 before the first
	run      int // children read in order
	step     int // 1, or -1 for a scan from the end
	upto     int // index behind the last child that was dealt with, in direction of step
	window   int
	entered  bool // the scan is here, or will be next
	inner    bool // the children are interior pages themselves
	spilled  int  // how many were fetched below the interior page that follows
}

// newAhead returns nil where pages cannot be fetched, or shall not.
func newAhead(f *file, o Options) *ahead {
	if o.Prefetch == Off {
		return nil
	}
	if f.fd < 0 {
		f.db.noPrefetch.Store(new("not the default VFS's files, or not Linux"))
		return nil
	}
	a := &ahead{f: f, depth: o.PrefetchDepth, room: o.PrefetchBytes, on: true}
	if a.depth == 0 {
		a.depth = defaultDepth
	}
	if a.room == 0 {
		a.room = defaultBytes
	}
	return a
}

// prefetchState says how pages are fetched, or why not.
func (d *database) prefetchState() string {
	if why := d.noPrefetch.Load(); why != nil {
		return "off: " + *why
	}
	if d.opts.Prefetch == Off {
		return "off"
	}
	return "posix_fadvise"
}

func (a *ahead) close() {
	a.forget()
	if a.fd != nil {
		a.fd.Close()
	}
}

// forget drops what is known of the B-trees.
func (a *ahead) forget() {
	for i := range a.nodes {
		a.drop(&a.nodes[i])
	}
	a.settle()
	a.sweep.reset()
}

// readAt reads for SQLite.
func (a *ahead) readAt(p []byte, off int64) (int, error) {
	if !a.on {
		return a.f.File.ReadAt(p, off)
	}
	n, errno := preadNoWait(a.f.fd, p, off)
	if errno == 0 && n == len(p) {
		if len(p) == a.page {
			a.hit(p, off)
		} else if off == 0 {
			a.page = pageSizeOf(p)
		}
		return n, nil
	}
	switch errno {
	case 0, syscall.EAGAIN, syscall.EINTR:
	default:
		a.on = false
		a.f.db.noPrefetch.Store(new("the file system cannot tell what is cached: " + errno.Error()))
	}
	missed := errno == syscall.EAGAIN && len(p) == a.page
	if missed {
		a.f.db.misses.Add(1)
		a.miss(a.number(off))
	}
	n, err := a.f.File.ReadAt(p, off)
	if n == len(p) && err == nil {
		if missed && interior(p, a.number(off)) {
			a.note(a.number(off))
		} else if off == 0 {
			a.page = pageSizeOf(p)
		}
	}
	return n, err
}

func (a *ahead) number(off int64) uint32 { return uint32(off/int64(a.page)) + 1 }

// hit is told of each page that was cached. It has to cost nothing unless a scan
// is on.
func (a *ahead) hit(p []byte, off int64) {
	if a.scan != nil || a.asked.n > 0 {
		page := a.number(off)
		a.took(page, &a.f.db.hits)
		if a.scan != nil {
			a.follow(page)
		}
	}
	if p[0] == interiorTable || p[0] == interiorIndex || off == 0 {
		if page := a.number(off); interior(p, page) {
			a.note(page)
		}
	}
}

// note remembers an interior page that was read. Unless a scan goes on below it,
// it is not looked at before a leaf of it is missed.
func (a *ahead) note(page uint32) {
	a.clock++
	n := a.known(page)
	n.used = a.clock
	n.parsed = n.parsed && (n == a.scan || n.entered) // it may have changed; a scan goes on with what it knows
	if up, at := a.above(page); up != nil {
		up.inner, up.at, up.used = true, at, a.clock
	}
	a.adopt(n)
}

// known returns what is remembered of an interior page, or makes room for it.
func (a *ahead) known(page uint32) *node {
	oldest := &a.nodes[0]
	for i := range a.nodes {
		n := &a.nodes[i]
		if n.page == page {
			return n
		}
		if n != a.scan && (n.used < oldest.used || oldest == a.scan) {
			oldest = n
		}
	}
	a.drop(oldest)
	*oldest = node{page: page, used: a.clock, children: oldest.children[:0], at: -1}
	return oldest
}

// drop forgets an interior page.
func (a *ahead) drop(n *node) {
	if a.scan == n {
		a.scan = nil
	}
	*n = node{children: n.children[:0]}
}

// parse reads the children of an interior page, from the page cache.
func (a *ahead) parse(n *node) bool {
	if n.parsed {
		return len(n.children) > 0
	}
	n.parsed = true
	before := len(n.children)
	n.children = a.below(n.children[:0], n.page)
	if len(n.children) != before {
		n.at, n.run = -1, 0
	}
	return len(n.children) > 0
}

// below appends the children of an interior page, if that is in the page cache.
func (a *ahead) below(dst []uint32, page uint32) []uint32 {
	if len(a.buf) != a.page {
		a.buf = make([]byte, a.page)
	}
	n, errno := preadNoWait(a.f.fd, a.buf, int64(page-1)*int64(a.page))
	if errno != 0 || n != a.page {
		return dst
	}
	return children(dst, a.buf, page)
}

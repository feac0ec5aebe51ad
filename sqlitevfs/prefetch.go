// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"os"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
)

// The evidence that makes a scan, and how far ahead of it pages are fetched.
const (
	defaultDepth = 64
	maxDepth     = 1024
	firstWindow  = 8   // pages fetched when a scan is recognised; then twice as many each time
	enough       = 3   // so many leaves read in order, not all of them cached, are a scan
	gap          = 8   // most leaves from one that SQLite reads to the next; those between may be in its cache
	nodes        = 8   // interior pages that are remembered
	judged       = 256 // from so many unread pages on, more evidence is required
)

// prefetcher reads leaves of B-trees into the page cache before a scan reads them.
// All reads of SQLite pass through it: interior pages contain the leaves and their
// order, and reads that wait for the disk show that fetching is worth while. The
// prefetcher keeps no page contents, so it cannot serve stale data. Wrong
// assumptions about the tree do no harm: pages that were moved are fetched
// unnecessarily.
type prefetcher struct {
	f     *file
	depth int    // the most pages of a window
	room  int    // bytes that may be fetched of the rest of a table
	page  int    // size of a page in bytes, 0 until known
	on    bool   // reads may try the page cache first
	buf   []byte // a page, for parsing

	nodes [nodes]node
	clock uint64
	scan  *node // the interior page whose children are being fetched
	table tableFetch

	asked   pageSet // pages that were fetched and not read since
	counted bool    // the scan is in Stats.Scans
	used    int     // pages that were fetched and read
	vain    int     // pages that were fetched and not read

	fd     *os.File // for fetching
	failed bool     // fd could not be opened
	traces bool     // Options.Trace
}

// newPrefetcher returns nil where pages cannot be fetched, or the options forbid it.
func newPrefetcher(f *file, o Options) *prefetcher {
	if o.Prefetch == Off {
		return nil
	}
	if f.fd < 0 {
		f.db.noPrefetch.Store(new("needs Linux and the files of the default VFS"))
		return nil
	}
	pf := &prefetcher{f: f, depth: o.PrefetchDepth, room: o.PrefetchBytes, on: true, traces: o.Trace}
	if pf.depth == 0 {
		pf.depth = defaultDepth
	}
	if pf.room == 0 {
		pf.room = defaultBytes
	}
	return pf
}

// prefetchState returns how pages are fetched, or why they are not.
func (d *database) prefetchState() string {
	if why := d.noPrefetch.Load(); why != nil {
		return "off: " + *why
	}
	if d.opts.Prefetch == Off {
		return "off"
	}
	return "posix_fadvise"
}

func (pf *prefetcher) close() {
	pf.forget()
	if pf.fd != nil {
		pf.fd.Close()
	}
}

// forget drops the known pages of the B-trees.
func (pf *prefetcher) forget() {
	for i := range pf.nodes {
		pf.drop(&pf.nodes[i])
	}
	pf.dropUnread()
	pf.table.reset()
}

// readCached is sys.PreadNoWait, except in tests.
var readCached = sys.PreadNoWait

// readAt reads for SQLite: from the page cache if it has all bytes, otherwise from the disk.
func (pf *prefetcher) readAt(p []byte, off int64) (int, error) {
	if !pf.on {
		return pf.f.File.ReadAt(p, off)
	}
	n, errno := readCached(pf.f.fd, p, off)
	if errno == 0 && n == len(p) {
		if len(p) == pf.page {
			pf.hit(p, off)
		} else if off == 0 {
			pf.page = pageSizeOf(p)
		}
		return n, nil
	}
	switch errno {
	case 0, syscall.EAGAIN, syscall.EINTR:
	default:
		pf.on = false
		pf.f.db.noPrefetch.Store(new("the file system does not report which pages are cached: " + errno.Error()))
	}
	missed := errno == syscall.EAGAIN && len(p) == pf.page
	if missed {
		pf.f.db.misses.Add(1)
		pf.miss(pf.number(off))
	}
	n, err := pf.f.File.ReadAt(p, off)
	if n == len(p) && err == nil {
		if missed && interior(p, pf.number(off)) {
			pf.note(pf.number(off))
		} else if off == 0 {
			pf.page = pageSizeOf(p)
		}
	}
	return n, err
}

func (pf *prefetcher) number(off int64) uint32 { return uint32(off/int64(pf.page)) + 1 }

// hit is called for each page that was cached. It must cost next to nothing unless a scan is
// in progress.
func (pf *prefetcher) hit(p []byte, off int64) {
	if pf.scan != nil || pf.asked.n > 0 {
		page := pf.number(off)
		pf.wasRead(page, &pf.f.db.hits)
		if pf.scan != nil {
			pf.follow(page)
		}
	}
	if p[0] == interiorTable || p[0] == interiorIndex || off == 0 {
		if page := pf.number(off); interior(p, page) {
			pf.note(page)
		}
	}
}

// note remembers an interior page that was read. Its children are parsed when one
// of its leaves is missed, or a scan continues below it.
func (pf *prefetcher) note(page uint32) {
	pf.clock++
	n := pf.known(page)
	n.used = pf.clock
	n.parsed = n.parsed && (n == pf.scan || n.entered) // the page may have changed; a scan continues with the children that it has parsed
	if up, at := pf.above(page); up != nil {
		up.inner, up.at, up.used = true, at, pf.clock
	}
	pf.continueBelow(n)
}

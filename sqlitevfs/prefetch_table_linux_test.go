// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"fmt"
	"testing"

	"github.com/ncruces/go-sqlite3"
)

// cursor reads the rows of a scattered table one by one through a cold cache.
type cursor struct {
	*testing.T
	path string
	c    *sqlite3.Conn
	s    *sqlite3.Stmt
	n    int
}

func newCursor(t *testing.T, path string, params ...string) *cursor {
	t.Helper()
	c := connect(t, path, NamePrefetch, params...)
	s, _, err := c.Prepare("SELECT id FROM t ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	evict(t, path)
	return &cursor{T: t, path: path, c: c, s: s}
}

// to reads up to the given row.
func (c *cursor) to(n int) {
	c.Helper()
	for ; c.n < n; c.n++ {
		if !c.s.Step() || c.s.ColumnInt(0) != c.n {
			c.Fatalf("row %d: %v", c.n, c.s.Err())
		}
	}
}

// unread returns how many fetched pages have not been read.
func (c *cursor) unread() int {
	s := statsOf(c.path)
	return int(s.Fetched - s.Hits - s.Late - s.Waste)
}

// TestTheRestOfATableIsFetched checks that the rest of a table is fetched after a fifth of
// it was read, and only as the scan proceeds.
func TestTheRestOfATableIsFetched(t *testing.T) {
	path := table(t, true, rows, 1024, 200)
	leaves := int(fileSize(t, path)) / 1024
	c := newCursor(t, path)
	c.to(rows / 6)
	if n := c.unread(); n > 2*defaultDepth {
		t.Errorf("%d pages fetched ahead after a sixth of the table", n)
	}
	for at := rows / 6; at < rows; at += rows / 50 {
		before := statsOf(path).Fetched
		c.to(at)
		if n, most := statsOf(path).Fetched-before, (tablePace+2)*leaves/50+2*defaultDepth; int(n) > most {
			t.Errorf("%d pages fetched for a fiftieth of %d, at row %d", n, leaves, at)
		}
		if n := c.unread(); at > rows*2/5 && at < rows*3/5 && n < leaves/5 {
			t.Errorf("%d pages of %d fetched ahead at row %d: %+v", n, leaves, at, statsOf(path))
		}
	}
	c.to(rows)
	keep := connect(t, path, NamePrefetch)
	defer keep.Close()
	c.s.Close()
	c.c.Close()
	if s := counted(t, path); s.Waste > 10 || int(s.Fetched) > leaves {
		t.Errorf("%+v", s)
	}
}

// TestAScanThatEndsLeavesTheRest checks that a scan that ends early has not fetched much more than
// it read, and that unused pages are counted.
func TestAScanThatEndsLeavesTheRest(t *testing.T) {
	path := table(t, true, rows, 1024, 200)
	leaves := int(fileSize(t, path)) / 1024
	for _, bytes := range []string{"", "1"} {
		t.Run("prefetchbytes="+bytes, func(t *testing.T) {
			keep := connect(t, path, NamePrefetch)
			defer keep.Close()
			c := newCursor(t, path, "prefetchbytes", bytes)
			for c.unread() <= 2*defaultDepth && c.n < rows*9/10 {
				c.to(c.n + 10)
			}
			if found := c.n < rows*9/10; found != (bytes == "") {
				t.Fatalf("row %d, %d pages fetched ahead", c.n, c.unread())
			}
			unread := c.unread()
			c.s.Close()
			c.c.Close()
			if s := counted(t, path); int(s.Waste) != unread || unread > leaves/4 {
				t.Errorf("%d pages fetched ahead, %+v", unread, s)
			}
		})
	}
}

// TestFetchingTheRestIsBounded checks that no more is fetched ahead than the limit permits.
func TestFetchingTheRestIsBounded(t *testing.T) {
	path := table(t, true, rows, 1024, 200)
	const room = 1500 << 10
	c := newCursor(t, path, "prefetchbytes", fmt.Sprint(room))
	most := 0
	for c.n < rows {
		c.to(c.n + 10)
		most = max(most, c.unread())
	}
	if limit := room/1024 + 2*defaultDepth; most > limit || most < room/1024/2 {
		t.Errorf("%d pages fetched ahead, %d at most", most, limit)
	}
	if s := statsOf(path); s.Misses > s.Fetched/4 {
		t.Errorf("%+v", s)
	}
}

// TestFetchedPagesThatAreGone checks that evicted pages are fetched again, a little at a time.
func TestFetchedPagesThatAreGone(t *testing.T) {
	path := table(t, true, rows, 1024, 200)
	leaves := int(fileSize(t, path)) / 1024
	c := newCursor(t, path)
	for all := 0; all < arrived+100 && c.n < rows/2; all++ { // the leaves that were read since the last row were fetched
		before := statsOf(path).Fetched
		c.to(c.n + 3)
		if statsOf(path).Fetched != before {
			all = 0
		}
	}
	if n := c.unread(); n < leaves/3 {
		t.Fatalf("%d of %d pages fetched ahead at row %d", n, leaves, c.n)
	}
	evict(t, path)
	before := statsOf(path)
	c.to(rows)
	s := statsOf(path)
	if s.Waste < uint64(leaves)/4 || s.Misses-before.Misses > uint64(leaves)/4 {
		t.Errorf("%+v", s)
	}
}

// TestPrefetchWithAWAL checks that pages in the WAL are read from there, because the trees in the
// database file may be outdated.
func TestPrefetchWithAWAL(t *testing.T) {
	path := table(t, true, rows, 1024, 200)
	leaves := uint64(fileSize(t, path)) / 1024
	w := connect(t, path, "os")
	execSQL(t, w, `PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF; PRAGMA wal_autocheckpoint=0;
		UPDATE t SET x=zeroblob(300) WHERE id%10=0; DELETE FROM t WHERE id%400<20;
		INSERT INTO t(x) SELECT zeroblob(100) FROM t LIMIT 3000`)
	keep := connect(t, path, NamePrefetch)
	defer keep.Close()
	c := connect(t, path, NamePrefetch)
	want := query(t, w, whole)
	evict(t, path)
	wantQuery(t, c, whole, want)
	c.Close()
	if s := counted(t, path); s.Waste > leaves || s.Fetched > 2*leaves {
		t.Errorf("%+v", s)
	}
}

func TestRunsOfASweep(t *testing.T) {
	s := tableFetch{pages: []uint32{3, 4, 5, 7, 8, 20}}
	for _, page := range []uint32{3, 4, 5, 8, 20} { // 7 was read
		s.planned.add(page)
	}
	var got []int
	for len(s.pages) > 0 {
		n := s.next(4096)
		got = append(got, n)
		s.pages = s.pages[max(n, 1):]
	}
	if want := []int{3, 0, 1, 1}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("runs of %v, want %v", got, want)
	}
	if !dense([]uint32{3, 4, 5, 9}) || dense([]uint32{3, 5, 7, 8}) {
		t.Error("dense")
	}
}

// TestLatePagesBeforeASweep checks that late pages before a sweep do not count as a sign of
// short memory.
func TestLatePagesBeforeASweep(t *testing.T) {
	var pf prefetcher
	for range arrived + 1 {
		pf.advance()
	}
	if pf.evicted(5); pf.table.lost != 0 {
		t.Error("a page counts as evicted")
	}
	pf.table.behind = inFlight + 100
	pf.evicted(99)
	pf.evicted(100)
	if pf.table.lost != 1 {
		t.Errorf("%d pages count as evicted, want 1", pf.table.lost)
	}
}

// TestLateInteriorPages checks that a scan waits for late interior pages, for a limited
// time, but not for those that it reads itself.
func TestLateInteriorPages(t *testing.T) {
	pf := prefetcher{page: 1024, f: &file{fd: -1}, scan: &node{step: 1}} // no page arrives from there
	pf.table.inner, pf.table.wait, pf.table.waits = []uint32{5, 6}, tableWait, tableWaits
	for range tableWait {
		pf.advance()
	}
	if s := &pf.table; len(s.inner) != 2 || s.wait != tableWait || s.waits != tableWaits-1 {
		t.Errorf("after the first wait: %+v", s)
	}
	pf.entered(&node{page: 5})
	if len(pf.table.inner) != 1 || pf.table.inner[0] != 6 {
		t.Errorf("after page 5: %v", pf.table.inner)
	}
	for range tableWait * tableWaits {
		pf.advance()
	}
	if s := &pf.table; len(s.inner) != 0 || s.wait != 0 {
		t.Errorf("in the end: %+v", s)
	}
}

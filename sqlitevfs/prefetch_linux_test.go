// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"golang.org/x/sys/unix"
)

// table makes a database whose rows were inserted in an order that scatters the leaves, or
// does not.
func table(t testing.TB, scattered bool, rows, pageSize, row int) string {
	return tableAs(t, "", scattered, rows, pageSize, row)
}

// tableAs makes such a database with an option of CREATE TABLE.
func tableAs(t testing.TB, option string, scattered bool, rows, pageSize, row int) string {
	path := dbFile(t)
	c := connect(t, path, "os")
	execSQL(t, c, fmt.Sprintf("PRAGMA page_size=%d; PRAGMA synchronous=OFF; PRAGMA journal_mode=OFF; CREATE TABLE t(id INTEGER PRIMARY KEY, x)%s; BEGIN", pageSize, option))
	s, _, err := c.Prepare("INSERT INTO t VALUES(?, zeroblob(" + strconv.Itoa(row) + "))")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	order := rand.New(rand.NewPCG(1, 2)).Perm(rows)
	if !scattered {
		slices.Sort(order)
	}
	for _, id := range order {
		s.BindInt(1, id)
		s.Step()
		if err := s.Reset(); err != nil {
			t.Fatal(err)
		}
	}
	execSQL(t, c, "COMMIT")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c.Close()
	return path
}

// waits makes reads that must not wait find only what was in the page cache before the call, as on a
// disk that needs longer than a system call. The call itself starts the read, and some disks have
// the page before the call looks again. Benchmarks measure the disk that there is.
var waits atomic.Bool

func init() {
	readCached = func(fd int, p []byte, off int64) (int, syscall.Errno) {
		if !waits.Load() {
			return sys.PreadNoWait(fd, p, off)
		}
		cached, err := cachedPrefix(fd, off, len(p))
		n, errno := sys.PreadNoWait(fd, p, off)
		if err != nil || errno != 0 {
			return n, errno
		}
		if cached == 0 && n > 0 {
			return -1, syscall.EAGAIN
		}
		return min(n, cached), 0
	}
}

// evict drops a file from the page cache, and skips the test where that is not possible.
func evict(t testing.TB, path string) {
	_, isTest := t.(*testing.T)
	waits.Store(isTest)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, f); err != nil { // pages that are being read would stay
		t.Fatal(err)
	}
	fd := descriptor(f)
	left, none := 0, 0
	for range 1000 { // pages that are being read are not dropped, and are resident later
		if err := unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED); err != nil {
			t.Fatal(err)
		}
		if left = resident(t, f); left > 0 {
			none = 0
		} else if none++; none == 2 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Skipf("the file system of %s does not drop cached pages: %d are left", path, left)
}

// resident returns how many pages of a file are in the page cache.
func resident(t testing.TB, f *os.File) (n int) {
	t.Helper()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	pages, err := sys.Mincore(descriptor(f), 0, int(info.Size()))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages {
		n += int(p & 1)
	}
	return n
}

// cachedPrefix returns how many bytes from off on, of n, are in the page cache without a gap.
func cachedPrefix(fd int, off int64, n int) (int, error) {
	skip := int(off % int64(os.Getpagesize()))
	pages, err := sys.Mincore(fd, off-int64(skip), skip+n)
	if err != nil {
		return 0, err
	}
	cached := slices.IndexFunc(pages, func(p byte) bool { return p&1 == 0 })
	if cached < 0 {
		return n, nil
	}
	return max(cached*os.Getpagesize()-skip, 0), nil
}

// scan runs a query on a cold database, closes the connection, and returns the VFS's counters.
func scan(t *testing.T, path, sql string, params ...string) Stats {
	t.Helper()
	want := query(t, connect(t, path, "os", "immutable", "1"), sql)
	keep := connect(t, path, NamePrefetch) // the database's counts
	defer keep.Close()
	c := connect(t, path, NamePrefetch, params...)
	evict(t, path)
	wantQuery(t, c, sql, want)
	c.Close()
	return counted(t, path)
}

// counted returns the counts of a database without connections that scan: each fetched page
// was either read or not.
func counted(t *testing.T, path string) Stats {
	t.Helper()
	s := statsOf(path)
	if s.Fetched != s.Hits+s.Late+s.Waste {
		t.Errorf("%d pages fetched, but %d hits, %d late and %d unused", s.Fetched, s.Hits, s.Late, s.Waste)
	}
	return s
}

const (
	rows  = 8000
	whole = "SELECT sum(length(x)) FROM t"
)

func TestScansOfScatteredLeavesAreFetchedAhead(t *testing.T) {
	for _, size := range []int{4096, 1024} {
		path := table(t, true, rows, size, size/5)
		for name, test := range map[string]struct {
			sql   string
			waste float64 // a fraction of the fetched pages
		}{
			"ascending":  {whole, .01},
			"descending": {"SELECT sum(y) FROM (SELECT length(x) AS y FROM t ORDER BY id DESC LIMIT 1000000)", .01},
			"a tenth":    {whole + " WHERE id BETWEEN 1000 AND 1800", .3},
			"a half":     {whole + " WHERE id BETWEEN 1000 AND 5000", .5},
		} {
			t.Run(strconv.Itoa(size)+"/"+name, func(t *testing.T) {
				s := scan(t, path, test.sql)
				if s.Fetched < 200 || float64(s.Waste) > test.waste*float64(s.Fetched) || s.Misses > s.Fetched/2 {
					t.Errorf("%+v", s)
				}
			})
		}
		t.Run(strconv.Itoa(size)+"/off", func(t *testing.T) {
			if s := scan(t, path, whole, "prefetch", "off"); s.Fetched != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestScansOfOtherTreesAreFetchedAhead checks that a scan stays one scan, and wastes nothing, where
// interior pages have few children or where one interior page has all leaves.
func TestScansOfOtherTreesAreFetchedAhead(t *testing.T) {
	for name, path := range map[string]string{
		"WITHOUT ROWID": tableAs(t, " WITHOUT ROWID", true, rows, 4096, 400),
		"16k":           table(t, true, rows, 16384, 800),
	} {
		for _, order := range []string{"", " DESC"} {
			t.Run(name+order, func(t *testing.T) {
				s := scan(t, path, "SELECT sum(y) FROM (SELECT length(x) AS y FROM t ORDER BY id"+order+" LIMIT 1000000)")
				if s.Fetched < 400 || s.Scans > 2 || s.Waste > s.Fetched/100 {
					t.Errorf("%+v", s)
				}
			})
		}
	}
}

// TestAScanIsFetchedForAgain checks that a scan that returns to leaves it has read counts
// as a new scan.
func TestAScanIsFetchedForAgain(t *testing.T) {
	path := table(t, true, rows, 4096, 800)
	c := connect(t, path, NamePrefetch)
	execSQL(t, c, "PRAGMA cache_size=10")
	last := uint64(0)
	for range 3 {
		evict(t, path)
		query(t, c, whole+" WHERE id BETWEEN 1000 AND 1700")
		s := statsOf(path)
		if s.Fetched-last < 100 {
			t.Errorf("%d pages fetched", s.Fetched-last)
		}
		last = s.Fetched
	}
	c.Close()
}

func TestOtherReadsAreLeftAlone(t *testing.T) {
	t.Run("contiguous", func(t *testing.T) {
		path := table(t, false, rows, 4096, 1000)
		if s := scan(t, path, whole); s.Fetched != 0 {
			t.Errorf("%+v", s)
		}
	})
	t.Run("random", func(t *testing.T) {
		path := table(t, true, rows, 4096, 1000)
		evict(t, path)
		c := connect(t, path, NamePrefetch)
		rnd := rand.New(rand.NewPCG(3, 4))
		for range 200 {
			id := strconv.Itoa(rnd.IntN(rows))
			wantQuery(t, c, "SELECT id FROM t WHERE id="+id, id)
		}
		if s := statsOf(path); s.Fetched > 100 || s.Misses < 50 {
			t.Errorf("%+v", s)
		}
	})
}

// TestChildrenOfInteriorPages compares the result of children with SQLite's own.
func TestChildrenOfInteriorPages(t *testing.T) {
	for _, size := range []int{512, 4096, 65536} {
		path := table(t, true, rows, size, size/8)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := pageSizeOf(data); got != size {
			t.Fatalf("page size %d, want %d", got, size)
		}
		c := connect(t, path, "os")
		root, _ := strconv.Atoi(query(t, c, "SELECT rootpage FROM sqlite_schema WHERE name='t'"))
		seen := map[uint32]bool{}
		walk(t, data, size, uint32(root), seen)
		if pages := len(data) / size; len(seen) != pages-1 { // all pages except that of the schema
			t.Errorf("page size %d: %d pages of the table found, want %d", size, len(seen), pages-1)
		}
	}
}

func walk(t *testing.T, data []byte, size int, page uint32, seen map[uint32]bool) {
	if seen[page] {
		t.Fatalf("page %d twice", page)
	}
	seen[page] = true
	p := data[int(page-1)*size:][:size]
	if interior(p, page) {
		for _, c := range children(nil, p, page) {
			walk(t, data, size, c, seen)
		}
	}
}

// Promise: sqlitevfs/corrupt-truncated-crafted
func FuzzChildren(f *testing.F) {
	f.Add(make([]byte, 512), uint32(1))
	f.Fuzz(func(t *testing.T, p []byte, page uint32) {
		if len(p) < minPage {
			return
		}
		for _, c := range children(nil, p, page) {
			if c < 2 {
				t.Error("page", c)
			}
		}
	})
}

// TestPrefetchWithWriters checks that no stale data is read while writers move pages
// during a scan.
func TestPrefetchWithWriters(t *testing.T) {
	path := table(t, true, rows/4, 1024, 200)
	w := connect(t, path, "os")
	execSQL(t, w, "PRAGMA synchronous=OFF")
	c := connect(t, path, NamePrefetch)
	for i := range 5 {
		evict(t, path)
		execSQL(t, w, fmt.Sprintf("DELETE FROM t WHERE id%%7=%d; INSERT INTO t(x) SELECT zeroblob(300) FROM t LIMIT 500", i))
		want := query(t, w, whole)
		evict(t, path)
		wantQuery(t, c, whole, want)
	}
	wantQuery(t, c, "PRAGMA integrity_check", "ok")
}

// TestTrace checks that the execution trace has the regions, and a goroutine profile the
// label, exactly when the option is set.
func TestTrace(t *testing.T) {
	for _, on := range []bool{false, true} {
		scanned := table(t, true, 20_000, 4096, 300)
		name := register(t, Options{GroupLog: On, Prefetch: On, Trace: on})
		var profile, events bytes.Buffer
		if err := trace.Start(&events); err != nil {
			t.Skipf("needs an execution trace, but one is already running: %v", err)
		}
		func() {
			defer trace.Stop()
			c := connect(t, dbFile(t), name)
			defer c.Close()
			execSQL(t, c, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t(x); INSERT INTO t VALUES(1); INSERT INTO t VALUES(2)")
			if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
				t.Fatal(err)
			}
			evict(t, scanned)
			scan := connect(t, scanned, name)
			defer scan.Close()
			query(t, scan, "SELECT sum(length(x)) FROM t")
		}()
		if got := strings.Contains(profile.String(), `"ringside":"sqlitevfs"`); got != on {
			t.Errorf("Trace %v: a label in the profile: %v", on, got)
		}
		for _, region := range []string{"sqlitevfs.sync", "sqlitevfs.commit", "sqlitevfs.prefetch"} {
			// Names of functions begin alike; the length precedes a string.
			if got := bytes.Contains(events.Bytes(), append([]byte{byte(len(region))}, region...)); got != on {
				t.Errorf("Trace %v: %s in the trace: %v", on, region, got)
			}
		}
	}
}

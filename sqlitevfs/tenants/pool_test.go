// SPDX-License-Identifier: MIT

package tenants

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

func newPool(t *testing.T, o Options) *Pool {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	p, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if s := p.Stats(); s.Open != 0 || s.InUse != 0 || s.Waiting != 0 || s.Memory != 0 {
			t.Errorf("after Shutdown: %+v", s)
		}
	})
	return p
}

func exec1(sql string) func(*Conn) error { return func(c *Conn) error { return c.Raw().Exec(sql) } }

// value returns the first column of the first row.
func value(c *Conn, sql string) (string, error) {
	s, err := c.Stmt(sql)
	if err != nil {
		return "", err
	}
	s.Step()
	return s.ColumnText(0), s.Err()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestNothingLeaks: what one tenant does to its connection is not there for another one, and what
// a use leaves behind does not disturb the next use of the tenant. Only one database may be open,
// so each use wakes its own.
func TestNothingLeaks(t *testing.T) {
	t.Parallel()
	p, ctx := newPool(t, Options{MaxOpen: 1}), t.Context()
	must(t, p.Create(ctx, "a", func(c *Conn) error {
		return c.Raw().Exec(`CREATE TABLE t(secret); INSERT INTO t VALUES('of a'); CREATE TEMP TABLE temporary(x); PRAGMA foreign_keys=off;
			PRAGMA user_version=7; PRAGMA temp_store=memory; CREATE TEMP VIEW v AS SELECT 'of a'`)
	}))
	must(t, p.Use(ctx, "a", func(c *Conn) error { // the statement is cached and has a row
		_, err := value(c, "SELECT secret FROM t")
		return err
	}))
	// The schema of b has the same cookie and the same names.
	must(t, p.Create(ctx, "b", exec1(`CREATE TABLE t(other, secret)`)))
	must(t, p.Use(ctx, "b", func(c *Conn) error {
		for sql, want := range map[string]string{
			"SELECT count(*) FROM t": "0", "SELECT max(secret) FROM t": "", "PRAGMA foreign_keys": "1", "PRAGMA user_version": "0",
			"SELECT count(*) FROM temp.sqlite_schema": "0", "SELECT last_insert_rowid()": "0", "SELECT total_changes()": "0",
			"SELECT count(*) FROM pragma_database_list WHERE name NOT IN ('main', 'temp')": "0", "SELECT count(*) FROM pragma_table_info('t')": "2",
		} {
			if got, err := value(c, sql); err != nil || got != want {
				t.Errorf("%s: %q, %v; want %q", sql, got, err, want)
			}
		}
		return nil
	}))
	// What a use leaves behind: a transaction, a row, another database.
	err := p.Use(ctx, "b", exec1("BEGIN; INSERT INTO t VALUES(1, 2)"))
	if !errors.Is(err, ErrTransaction) {
		t.Errorf("an open transaction: %v", err)
	}
	must(t, p.Use(ctx, "b", func(c *Conn) error {
		if _, err := c.Stmt("SELECT 1; SELECT 2"); err == nil {
			t.Error("two statements")
		}
		s, _, err := c.Raw().Prepare("SELECT 1 UNION SELECT 2")
		if err == nil && !s.Step() {
			err = s.Err()
		}
		return errors.Join(err, c.Raw().Exec("ATTACH ':memory:' AS more"))
	}))
	must(t, p.Use(ctx, "b", func(c *Conn) error {
		n, err := value(c, "SELECT (SELECT count(*) FROM t) || (SELECT count(*) FROM pragma_database_list WHERE name = 'more')")
		if n != "00" {
			t.Errorf("after the uses: %s", n)
		}
		return err
	}))
	func() {
		defer func() { recover() }()
		_ = p.Use(ctx, "b", func(c *Conn) error { _ = c.Raw().Exec("BEGIN; DELETE FROM t"); panic("of a test") })
	}()
	must(t, p.Use(ctx, "b", exec1("INSERT INTO t VALUES(1, 2)")))
	must(t, p.Closed(ctx, "b", func(path string) error { return checkStock(t, path) }))
}

// checkStock checks a database by the program sqlite3.
func checkStock(t *testing.T, path string) error {
	out, err := exec.Command("sqlite3", path, "PRAGMA integrity_check; PRAGMA journal_mode; SELECT count(*) FROM t").CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		t.Log("the program sqlite3 is missing")
		return nil
	}
	if got := strings.Fields(string(out)); err == nil && strings.Join(got, " ") != "ok wal 1" {
		err = fmt.Errorf("the program sqlite3: %q", out)
	}
	return err
}

// TestMemoryBound: SQLite's memory stays within the bound while more databases are used than fit,
// and a statement that needs more than a connection may have fails alone.
func TestMemoryBound(t *testing.T) { // alone, as it reads the memory of the process
	const bound, each, tenants = 12 << 20, 4 << 20, 48
	p, ctx := newPool(t, Options{Memory: bound, TenantMemory: each, VFS: "os"}), t.Context()
	name := func(i int) string { return "t" + strconv.Itoa(i) }
	before := resident()
	for i := range tenants {
		must(t, p.Create(ctx, name(i), exec1(`PRAGMA synchronous=off; CREATE TABLE t(body);
			WITH n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<300) INSERT INTO t SELECT zeroblob(2000) FROM n`)))
	}
	var most, grown atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range tenants / 4 {
				if err := p.Use(ctx, name(rand.IntN(tenants)), func(c *Conn) error {
					_, err := value(c, "SELECT sum(length(body)) FROM t")
					for s, n := p.Stats().Memory, most.Load(); s > n && !most.CompareAndSwap(n, s); n = most.Load() {
					}
					grown.Add(c.size())
					return err
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	debug.FreeOSMemory()
	after := resident()
	if most.Load() > bound || p.Stats().Evicted == 0 {
		t.Errorf("%d bytes were used: the bound is %d; %+v", most.Load(), bound, p.Stats())
	}
	if average := grown.Load() / (8 * tenants / 4); average < 900<<10 {
		t.Errorf("a connection has %d bytes: the page caches are not filled", average)
	}
	if !raced && after-before > bound*11/10+(8<<20) { // and 8 MiB of Go's own
		t.Errorf("the process has %d MiB more", (after-before)>>20)
	}
	t.Logf("%+v, resident %d MiB before, %d MiB after", p.Stats(), before>>20, after>>20)
	err := p.Use(ctx, name(0), func(c *Conn) error {
		_, err := value(c, "SELECT length(hex(zeroblob(4000000)))")
		return err
	})
	if !errors.Is(err, sqlite3.NOMEM) {
		t.Errorf("more than a connection may have: %v", err)
	}
	must(t, p.Use(ctx, name(0), exec1("SELECT 1")))
}

// resident returns the resident memory of the process in bytes, 0 if it is not known.
func resident() int64 {
	status, _ := os.ReadFile("/proc/self/statm")
	if f := strings.Fields(string(status)); len(f) > 1 {
		pages, _ := strconv.ParseInt(f[1], 10, 64)
		return pages * int64(os.Getpagesize())
	}
	return 0
}

// TestStuck: a use, a wake-up and a closing that hang delay their own tenants only, and other uses
// of these end with their contexts.
func TestStuck(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	vfs.Register("tenants-stuck", stuckVFS{vfs.Find("os"), hang})
	p := newPool(t, Options{
		MaxOpen: 5, VFS: "tenants-stuck", Idle: time.Millisecond,
		Init: func(_ *sqlite3.Conn, name string) error {
			if name == "waking" {
				<-hang
			}
			return nil
		},
	})
	ctx := t.Context()
	var all sync.WaitGroup
	defer all.Wait()
	defer close(hang)
	must(t, p.Create(ctx, "closing", exec1("SELECT 1"))) // and is idle
	using := make(chan struct{})
	all.Go(func() {
		_ = p.Create(ctx, "using", func(*Conn) error { close(using); <-hang; return nil })
	})
	all.Go(func() { _ = p.Create(ctx, "waking", exec1("SELECT 1")) })
	<-using
	for i := range 20 {
		must(t, p.Create(ctx, "t"+strconv.Itoa(i), exec1("CREATE TABLE t(x)")))
	}
	for _, name := range []string{"using", "waking", "closing"} {
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		err := p.Create(short, name, exec1("SELECT 1"))
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
	all.Go(func() { _ = p.Create(ctx, "closing", exec1("SELECT 1")) }) // is the first of the queue from now on
	for i := range 20 {
		must(t, p.Use(ctx, "t"+strconv.Itoa(i), exec1("SELECT 1")))
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := p.Shutdown(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown: %v", err)
	}
	if err := p.Use(ctx, "t0", exec1("SELECT 1")); !errors.Is(err, ErrClosed) || !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Shutdown: %v", err)
	}
}

// stuckVFS has a file whose Close hangs.
type stuckVFS struct {
	vfs.VFS
	hang chan struct{}
}

type stuckFile struct {
	vfs.File
	hang chan struct{}
}

func (v stuckVFS) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f, out, err := vfsutil.WrapOpenFilename(v.VFS, name, flags)
	if err == nil && filepath.Base(name.String()) == "closing.db" {
		f = stuckFile{f, v.hang}
	}
	return f, out, err
}

func (f stuckFile) Close() error { <-f.hang; return f.File.Close() }

// TestPlaces: as many databases are opened at a time as there are places, a use that waits for one can give up, and
// databases that take long to be opened leave theirs to others.
func TestPlaces(t *testing.T) {
	t.Parallel()
	const tenants = 24
	var opening, most atomic.Int64
	hang := make(chan struct{})
	options := Options{VFS: "os", Init: func(*sqlite3.Conn, string) error {
		n := opening.Add(1)
		defer opening.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		<-hang
		return nil
	}}
	p := newPool(t, options)
	p.room.patient = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	create := func() {
		for i := range tenants {
			all.Go(func() {
				if err := p.Create(ctx, "t"+strconv.Itoa(i), exec1("SELECT 1")); err != nil {
					t.Error(err)
				}
			})
		}
	}
	await := func(what string, done func() bool) {
		t.Helper()
		for !done() {
			if ctx.Err() != nil {
				t.Errorf("%s: %d are being opened, %+v", what, opening.Load(), p.Stats())
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	create()
	await("with places", func() bool { return int(opening.Load()) == places() && p.Stats().Waiting == tenants-places() })
	open := p.Stats().Open
	short, end := context.WithTimeout(ctx, 5*time.Millisecond)
	defer end()
	if err := p.Create(short, "late", exec1("SELECT 1")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a use that gives up: %v", err)
	}
	if s := p.Stats(); s.Open != open || s.Waiting != tenants-places() {
		t.Errorf("after it: %+v, %d were open", s, open)
	}
	close(hang)
	all.Wait()
	if n := int(most.Load()); n > places() {
		t.Errorf("%d were opened at a time; there are %d places", n, places())
	}

	hang, p = make(chan struct{}), newPool(t, options)
	create()
	await("all take long", func() bool { return opening.Load() == tenants })
	close(hang)
	all.Wait()
}

// TestSingleWakeUp: uses that wait for a database that is closed share its wake-up, and its
// failure.
func TestSingleWakeUp(t *testing.T) {
	t.Parallel()
	var wakes atomic.Int64
	var broken atomic.Bool
	var p *Pool
	const uses = 20
	broken.Store(true)
	p = newPool(t, Options{VFS: "os", Init: func(*sqlite3.Conn, string) error {
		wakes.Add(1)
		for p.Stats().Waiting < uses-1 {
			time.Sleep(time.Millisecond)
		}
		if broken.Load() {
			return errors.New("of a test")
		}
		return nil
	}})
	for _, failures := range []int64{uses, 0} {
		var failed atomic.Int64
		var all sync.WaitGroup
		for range uses {
			all.Go(func() {
				if p.Create(t.Context(), "a", exec1("SELECT 1")) != nil {
					failed.Add(1)
				}
			})
		}
		all.Wait()
		if n := wakes.Swap(0); n != 1 || failed.Load() != failures {
			t.Errorf("%d wake-ups, %d failures; want 1, %d", n, failed.Load(), failures)
		}
		broken.Store(false)
	}
}

// TestHotTenant: a tenant with many uses that wait has one turn for each of another tenant.
func TestHotTenant(t *testing.T) {
	t.Parallel()
	p, ctx := newPool(t, Options{MaxOpen: 1, VFS: "os"}), t.Context()
	must(t, p.Create(ctx, "cold", exec1("SELECT 1")))
	var hot atomic.Int64
	var inside atomic.Bool // of a use of the hot tenant, which hold keeps from its end
	var hold sync.Mutex
	var all sync.WaitGroup
	stop, cancel := context.WithCancel(ctx)
	const uses = 20
	for range uses {
		all.Go(func() {
			for stop.Err() == nil {
				_ = p.Create(stop, "hot", func(*Conn) error {
					hot.Add(1)
					inside.Store(true)
					hold.Lock()
					defer hold.Unlock()
					inside.Store(false)
					return nil
				})
			}
		})
	}
	waiting := func(n int) {
		for !inside.Load() || p.Stats().Waiting < n {
			time.Sleep(time.Millisecond)
		}
	}
	for range 10 {
		hold.Lock()
		waiting(uses - 1)
		before, used := hot.Load(), make(chan int64, 1)
		all.Go(func() {
			if err := p.Use(ctx, "cold", func(*Conn) error { used <- hot.Load() - before; return nil }); err != nil {
				t.Error(err)
				used <- 0
			}
		})
		waiting(uses)
		hold.Unlock()
		if n := <-used; n > 2 {
			t.Errorf("%d uses of the hot tenant came before", n)
		}
	}
	cancel()
	all.Wait()
}

// TestNames: names that are not allowed, tenants that are missing, links, Closed.
func TestNames(t *testing.T) {
	t.Parallel()
	p, ctx := newPool(t, Options{Idle: time.Hour}), t.Context()
	for _, name := range []string{"", "..", "a/b", "A", "a.db", "-a", "a?mode=rwc", "a%00", "\x00", strings.Repeat("a", 65)} {
		if err := p.Create(ctx, name, exec1("SELECT 1")); !errors.Is(err, ErrName) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := p.Use(ctx, "missing", exec1("SELECT 1")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing tenant: %v", err)
	}
	must(t, p.Create(ctx, "a", exec1("CREATE TABLE t(x)")))
	if err := os.Symlink("a.db", filepath.Join(p.opts.Dir, "link.db")); err == nil {
		if err := p.Use(ctx, "link", exec1("SELECT 1")); err == nil {
			t.Error("a link was followed")
		}
	}
	must(t, p.Closed(ctx, "a", func(path string) error {
		if s := p.Stats(); s.Open != 0 {
			t.Errorf("in Closed: %+v", s)
		}
		return os.Remove(path)
	}))
	if err := p.Use(ctx, "a", exec1("SELECT 1")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed tenant: %v", err)
	}
	for _, o := range []Options{{}, {Dir: "missing"}, {Dir: "pool.go"}, {Dir: ".", VFS: "none"}, {Dir: ".", Memory: 1 << 20}, {Dir: ".", TenantMemory: 1}, {Dir: ".", Descriptors: 1}} {
		if _, err := Open(o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

// TestIdle: idle databases are closed, and the bound of descriptors holds.
func TestIdle(t *testing.T) {
	t.Parallel()
	p, ctx := newPool(t, Options{Idle: 10 * time.Millisecond, Descriptors: 4 * descriptors, Shared: true}), t.Context()
	if p.opts.MaxOpen != 4 {
		t.Errorf("%d databases may be open", p.opts.MaxOpen)
	}
	for i := range 10 {
		must(t, p.Create(ctx, "t"+strconv.Itoa(i), func(c *Conn) error {
			if err := c.Raw().Exec("CREATE TABLE t(x); INSERT INTO t VALUES(1)"); err != nil {
				return err
			}
			if n := len(ringtest.Descriptors(t, p.opts.Dir)); n > 4*descriptors {
				t.Errorf("%d descriptors", n)
			}
			return nil
		}))
	}
	for p.Stats().Open > 0 {
		time.Sleep(time.Millisecond)
	}
	if s := p.Stats(); s.Idle == 0 || s.Memory != 0 {
		t.Errorf("%+v", s)
	}
}

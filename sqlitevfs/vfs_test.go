// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"
	_ "github.com/ncruces/go-sqlite3/driver"
	"github.com/ncruces/go-sqlite3/vfs"
)

var names = []string{Name, NamePlain, NamePrefetch, NameGroup}

var modes = []string{"delete", "truncate", "persist", "memory", "off", "wal"}

// Promise: sqlitevfs/committed-transaction-found
func TestEveryJournalModeKeepsWhatWasCommitted(t *testing.T) {
	for _, name := range names {
		for _, mode := range modes {
			t.Run(name+"/"+mode, func(t *testing.T) {
				path := dbFile(t)
				c := connect(t, path, name)
				wantQuery(t, c, "PRAGMA journal_mode="+mode, mode)
				execSQL(t, c, "PRAGMA synchronous=FULL; CREATE TABLE t(a INTEGER PRIMARY KEY, b); CREATE INDEX i ON t(b)")
				for i := range 20 {
					execSQL(t, c, fmt.Sprintf("BEGIN; INSERT INTO t VALUES(%d, randomblob(2000)); COMMIT", i))
				}
				if mode != "off" {
					execSQL(t, c, "BEGIN; DELETE FROM t; ROLLBACK")
				}
				execSQL(t, c, "VACUUM")
				wantQuery(t, c, "SELECT count(*) FROM t", "20")
				if err := c.Close(); err != nil {
					t.Error(err)
				}
				stock := connect(t, path, "os")
				wantQuery(t, stock, "SELECT count(*) FROM t", "20")
				wantQuery(t, stock, "PRAGMA integrity_check", "ok")
			})
		}
	}
}

func TestDatabaseSQL(t *testing.T) {
	db, err := sql.Open("sqlite3", uri(dbFile(t), Name, "_pragma", "journal_mode(wal)"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE t(a); INSERT INTO t VALUES(42)"); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := db.QueryRow("SELECT a FROM t").Scan(&n); err != nil || n != 42 {
		t.Errorf("%d, %v", n, err)
	}
	var state string
	if err := db.QueryRow("PRAGMA ringside").Scan(&state); err != nil || !strings.Contains(state, `"vfs":"ringside"`) {
		t.Errorf("PRAGMA ringside: %q, %v", state, err)
	}
}

func TestTemporaryAndMemoryDatabasesAreTheBases(t *testing.T) {
	c := connect(t, dbFile(t), Name)
	execSQL(t, c, "PRAGMA temp_store=file; CREATE TEMP TABLE t(a); INSERT INTO t VALUES(randomblob(100000))")
	m, err := sqlite3.Open("file::memory:?vfs=" + Name)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	execSQL(t, m, "CREATE TABLE t(a); INSERT INTO t VALUES(1)")
	wantQuery(t, m, "SELECT count(*) FROM t", "1")
}

func TestAttachedDatabasesCommitTogether(t *testing.T) {
	name, r := record(t, Options{})
	path := dbFile(t)
	c := connect(t, path, name)
	execSQL(t, c, "CREATE TABLE t(a); ATTACH '"+uri(path+"2", name)+"' AS b; CREATE TABLE b.u(a)")
	r.take()
	execSQL(t, c, "BEGIN; INSERT INTO t VALUES(1); INSERT INTO u VALUES(1); COMMIT")
	events := r.take()
	super := slices.IndexFunc(events, func(e string) bool {
		return strings.HasPrefix(e, "delete mj") || strings.Contains(e, "-mj") || strings.HasPrefix(e, "delete db")
	})
	if !slices.Contains(events, "sync dir") {
		t.Errorf("no directory was synced (super-journal at position %d): %v", super, events)
	}
	wantQuery(t, c, "SELECT (SELECT count(*) FROM t)+(SELECT count(*) FROM u)", "2")
}

// TestDirectoryIsSyncedBeforeAndAfterACommit compares the order of the calls that make a
// commit durable, with synchronous=FULL.
func TestDirectoryIsSyncedBeforeAndAfterACommit(t *testing.T) {
	name, r := record(t, Options{})
	c := connect(t, dbFile(t), name)
	execSQL(t, c, "PRAGMA synchronous=FULL; CREATE TABLE t(a)")
	for _, test := range []struct{ mode, want string }{
		{"delete", "write journal, sync journal, sync dir, write journal, sync journal, write db, sync db, delete journal, sync dir"},
		{"persist", "write journal, sync journal, sync dir, write journal, sync journal, write db, sync db, write journal, sync journal"},
	} {
		execSQL(t, c, "PRAGMA journal_mode="+test.mode)
		r.take()
		execSQL(t, c, "INSERT INTO t VALUES(1)")
		if got := strings.Join(r.take(), ", "); got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.mode, got, test.want)
		}
	}
}

// TestKnownEntriesAreNotSyncedAgain checks that the entry of a journal that stays is synced
// once, not with each commit, and the entry of a new one with the journal where the file system does that.
func TestKnownEntriesAreNotSyncedAgain(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux, where files are distinguished by their time of birth")
	}
	for _, test := range []struct {
		vfs, mode string
		want      uint64
	}{
		{NamePlain, "persist", 0}, {NamePlain, "truncate", 0}, {NamePlain, "delete", 20},
		{Name, "persist", 0}, {Name, "truncate", 0}, {Name, "delete", 10},
	} {
		mode, want := test.mode, test.want
		path := dbFile(t)
		c := connect(t, path, test.vfs)
		if state := statsOf(path).GroupSync; state != "on" && want == 10 {
			want = 20 // the entry of a new journal is synced by itself
		}
		execSQL(t, c, "PRAGMA synchronous=FULL; PRAGMA journal_mode="+mode+"; CREATE TABLE t(a)")
		for old := time.Now().Add(100 * time.Millisecond); ; {
			begun := time.Now()
			execSQL(t, c, "INSERT INTO t VALUES(1)")
			if begun.After(old) { // The journal that it found had always been old enough.
				break
			}
		}
		before := statsOf(path).DirSyncs
		for range 10 {
			execSQL(t, c, "INSERT INTO t VALUES(1)")
		}
		if got := statsOf(path).DirSyncs - before; got != want {
			t.Errorf("%s, %s: 10 commits synced directories %d times, want %d", test.vfs, mode, got, want)
		}
	}
}

func TestLesserDurabilityIsNotPaidFor(t *testing.T) {
	name, r := record(t, Options{})
	c := connect(t, dbFile(t), name)
	execSQL(t, c, "PRAGMA synchronous=NORMAL; CREATE TABLE t(a)")
	r.take()
	execSQL(t, c, "INSERT INTO t VALUES(1)")
	want := "write journal, sync journal, sync dir, write journal, write db, sync db, delete journal"
	got := strings.ReplaceAll(strings.Join(r.take(), ", "), "write journal, sync journal, sync dir, write db", "write journal, sync journal, sync dir, write journal, write db")
	if got != want {
		t.Errorf("NORMAL:\n got %s\nwant %s", got, want)
	}
	execSQL(t, c, "PRAGMA synchronous=OFF; INSERT INTO t VALUES(1)")
	for _, e := range r.take() {
		if strings.HasPrefix(e, "sync") {
			t.Errorf("OFF: %s", e)
		}
	}
	off, r2 := record2(t, Options{DirSync: Off})
	c = connect(t, dbFile(t), off)
	execSQL(t, c, "PRAGMA synchronous=FULL; CREATE TABLE t(a); INSERT INTO t VALUES(1)")
	if slices.Contains(r2.take(), "sync dir") {
		t.Error("directories were synced although DirSync is Off")
	}
}

func record2(t *testing.T, o Options) (name string, r *recorder) {
	t.Run("other", func(sub *testing.T) {
		r = &recorder{VFS: vfs.Find("")}
		o.Base = "base2-" + t.Name()
		vfs.Register(o.Base, r)
		name = "vfs2-" + t.Name()
		if err := Register(name, o); err != nil {
			sub.Fatal(err)
		}
	})
	t.Cleanup(func() { vfs.Unregister(o.Base); vfs.Unregister(name) })
	return name, r
}

func TestWALEntryIsSyncedWhenMadeAndRemoved(t *testing.T) {
	name, r := record(t, Options{})
	path := dbFile(t)
	c := connect(t, path, name)
	execSQL(t, c, "PRAGMA synchronous=FULL; PRAGMA journal_mode=wal; CREATE TABLE t(a)")
	events := r.take()
	first := slices.Index(events, "sync wal")
	if first < 0 || first+1 >= len(events) || events[first+1] != "sync dir" {
		t.Errorf("the first sync of the WAL is not followed by one of the directory: %v", events)
	}
	execSQL(t, c, "INSERT INTO t VALUES(1)")
	if got := strings.Join(r.take(), ", "); got != "write wal, sync wal" {
		t.Errorf("second commit: %s", got)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	events = r.take()
	if n := len(events); n < 2 || events[n-2] != "delete wal" || events[n-1] != "sync dir" {
		t.Errorf("closing: %v", events)
	}
}

// TestSyncsOfAWakeUp counts the calls of a database that is opened exclusively, changed and closed. The header of a
// new WAL needs no sync of its own, and a WAL that was synced for its commit none before the checkpoint.
func TestSyncsOfAWakeUp(t *testing.T) {
	const commit = "write wal, sync wal"
	const later = "write wal, sync wal, sync dir, write wal, sync wal" // the header first
	const end = "write db, sync db, delete wal, sync dir"
	for _, test := range []struct {
		ordered    bool
		sql        string // a transaction
		want, done string // what it calls, and what closing does
	}{
		{true, "UPDATE t SET a=2", commit, end},
		{true, "UPDATE t SET a=2; UPDATE t SET a=3", commit + ", " + commit, end},
		{true, "PRAGMA synchronous=normal; UPDATE t SET a=2", "write wal", "sync wal, " + end},
		{true, "PRAGMA synchronous=normal; UPDATE t SET a=2; PRAGMA synchronous=full", "write wal", "sync wal, " + end},
		{true, "UPDATE t SET a=2; PRAGMA wal_checkpoint(RESTART); UPDATE t SET a=3",
			commit + ", write db, sync db, write wal, sync wal, write wal, sync wal", end},
		{true, "UPDATE t SET a=2; PRAGMA wal_checkpoint(TRUNCATE); UPDATE t SET a=3",
			commit + ", write db, sync db, write wal, sync wal, write wal, sync wal", end},
		{false, "UPDATE t SET a=2", later, end},
		{false, "UPDATE t SET a=2; UPDATE t SET a=3", later + ", " + commit, end},
	} {
		t.Run(fmt.Sprintf("%v %s", test.ordered, test.sql), func(t *testing.T) {
			name, r := record(t, Options{})
			r.ordered = test.ordered
			path := dbFile(t)
			c := connect(t, path, name)
			execSQL(t, c, "PRAGMA journal_mode=wal; CREATE TABLE t(a); INSERT INTO t VALUES(1)")
			c.Close()
			c = connect(t, path, name)
			execSQL(t, c, "PRAGMA locking_mode=exclusive; PRAGMA journal_mode=wal; PRAGMA synchronous=full; SELECT * FROM t")
			r.take()
			execSQL(t, c, test.sql)
			if got := strings.Join(r.take(), ", "); got != test.want {
				t.Errorf("\n got %s\nwant %s", got, test.want)
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(r.take(), ", "); got != test.done {
				t.Errorf("closing:\n got %s\nwant %s", got, test.done)
			}
		})
	}
}

// Promise: sqlitevfs/disk-error-fails
func TestFailedSyncStays(t *testing.T) {
	for _, where := range []string{"sync journal", "sync db", "sync dir"} {
		t.Run(where, func(t *testing.T) {
			name, r := record(t, Options{})
			path := dbFile(t)
			c := connect(t, path, name)
			execSQL(t, c, "PRAGMA synchronous=FULL; CREATE TABLE t(a)")
			r.fail = func(e string) error {
				if e == where {
					return syscall.EIO
				}
				return nil
			}
			err := c.Exec("INSERT INTO t VALUES(1)")
			if !errors.Is(err, sqlite3.IOERR) {
				t.Fatalf("with %s failing: %v", where, err)
			}
			r.fail = nil // the kernel reports the error once
			if err := c.Exec("INSERT INTO t VALUES(2)"); err == nil {
				t.Error("a commit after a failed sync succeeded")
			}
			c2 := connect(t, path, name)
			if err := c2.Exec("INSERT INTO t VALUES(3)"); err == nil {
				t.Error("a commit of another connection succeeded")
			}
			c.Close()
			c2.Close()
			c = connect(t, path, name)
			execSQL(t, c, "INSERT INTO t VALUES(4)")
			wantQuery(t, c, "PRAGMA integrity_check", "ok")
		})
	}
}

// TestDirectoryThatCannotBeSynced commits where the file system does not sync directories,
// and where the directory may not be read: as with SQLite's own VFS that is no failure.
func TestDirectoryThatCannotBeSynced(t *testing.T) {
	for _, why := range []error{syscall.EACCES, syscall.EINVAL} {
		if _, ok := errors.AsType[syscall.Errno](why); why == syscall.EINVAL && (!ok || !unsupportedSync(why)) {
			continue // this system returns another errno for it
		}
		name, r := record(t, Options{})
		r.fail = func(e string) error {
			if e == "sync dir" {
				return why
			}
			return nil
		}
		t.Run(why.Error(), func(t *testing.T) {
			path := dbFile(t)
			c := connect(t, path, name)
			execSQL(t, c, "PRAGMA synchronous=FULL; CREATE TABLE t(a); INSERT INTO t VALUES(1)")
			execSQL(t, c, "PRAGMA journal_mode=WAL; INSERT INTO t VALUES(2)")
			if !slices.Contains(r.take(), "sync dir") {
				t.Error("no directory was synced")
			}
			if n := statsOf(path).DirSyncs; n != 0 {
				t.Errorf("%d syncs of directories are counted, want 0: all failed", n)
			}
			wantQuery(t, c, "SELECT count(*) FROM t", "2")
		})
	}
}

// TestFailedSyncOfARemoval makes the directory sync after the removal of a journal fail.
// The commit must not be acknowledged, because after a power cut the journal could undo it.
func TestFailedSyncOfARemoval(t *testing.T) {
	name, r := record(t, Options{})
	path := dbFile(t)
	c := connect(t, path, name)
	execSQL(t, c, "PRAGMA synchronous=FULL; CREATE TABLE t(a)")
	removed := false
	r.fail = func(e string) error {
		if removed && e == "sync dir" {
			return syscall.EIO
		}
		removed = removed || e == "delete journal"
		return nil
	}
	if err := c.Exec("INSERT INTO t VALUES(1)"); !errors.Is(err, sqlite3.IOERR_DIR_FSYNC) {
		t.Errorf("the commit: %v", err)
	}
	r.fail = nil // the kernel reports the error once
	if err := c.Exec("INSERT INTO t VALUES(2)"); err == nil {
		t.Error("the next commit succeeded")
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []Options{
		{Prefetch: 3}, {GroupSync: -1}, {DirSync: 7}, {Atomic4K: 3}, {Atomic4K: -1}, {PrefetchDepth: -1}, {PrefetchDepth: maxDepth + 1}, {PrefetchBytes: -1}, {Base: "no such"},
	} {
		if err := Register("wrong", o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	for _, name := range []string{"", "os"} {
		if Register(name, Options{}) == nil {
			t.Errorf("the name %q was accepted", name)
		}
	}
	path := dbFile(t)
	for _, p := range [][]string{{"prefetch", "maybe"}, {"groupsync", "2"}, {"dirsync", "x"}, {"prefetchdepth", "-4"}, {"prefetchdepth", "many"}, {"prefetchbytes", "-1"}, {"atomic4k", "maybe"}} {
		c, err := sqlite3.Open(uri(path, Name, p...))
		if err == nil {
			c.Close()
			t.Errorf("%v was accepted", p)
		} else if !strings.Contains(strings.ToLower(err.Error()), p[0]) {
			t.Errorf("%v: %v does not name it", p, err)
		}
	}
}

// TestNamesOfOptions parses the results of String, in any case, and SQLite's words.
func TestNamesOfOptions(t *testing.T) {
	for _, s := range []Switch{Auto, On, Off} {
		for _, name := range []string{s.String(), strings.ToUpper(s.String())} {
			if got, err := parseSwitch(name); got != s || err != nil {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		}
	}
	for name, want := range map[string]Switch{"yes": On, "true": On, "1": On, "no": Off, "false": Off, "0": Off} {
		if got, err := parseSwitch(name); got != want || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for _, a := range []Atomic{AtomicOff, AtomicOn, AtomicTrust} {
		if got, err := parseAtomic(a.String()); got != a || err != nil {
			t.Errorf("%v: %v, %v", a, got, err)
		}
	}
	for want, got := range map[string]fmt.Stringer{"Switch(3)": Switch(3), "Atomic(-1)": Atomic(-1)} {
		if got.String() != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
}

func TestParametersOverrideOptions(t *testing.T) {
	c := connect(t, dbFile(t), Name, "prefetch", "off")
	if got := query(t, c, "PRAGMA ringside"); !strings.Contains(got, `"prefetch":"off"`) {
		t.Error(got)
	}
	if err := c.Exec("PRAGMA ringside=1"); err == nil {
		t.Error("PRAGMA ringside took a value")
	}
}

func TestWhatIsLeftOutSaysWhy(t *testing.T) {
	name, _ := record(t, Options{})
	got := query(t, connect(t, dbFile(t), name), "PRAGMA ringside")
	if !strings.Contains(got, `"prefetch":"off: needs Linux and the files`) || !strings.Contains(got, `"groupSync":"off: not the`) {
		t.Error(got)
	}
}

func TestFileControls(t *testing.T) {
	path := dbFile(t)
	c := connect(t, path, Name)
	execSQL(t, c, "CREATE TABLE t(a)")
	for _, op := range []struct {
		op   sqlite3.FcntlOpcode
		args []any
	}{
		{sqlite3.FCNTL_PERSIST_WAL, []any{true}},
		{sqlite3.FCNTL_POWERSAFE_OVERWRITE, []any{false}},
		{sqlite3.FCNTL_CHUNK_SIZE, []any{65536}},
		{sqlite3.FCNTL_LOCKSTATE, nil},
	} {
		if _, err := c.FileControl("main", op.op, op.args...); err != nil {
			t.Errorf("%v: %v", op.op, err)
		}
	}
	if v, _ := c.FileControl("main", sqlite3.FCNTL_PERSIST_WAL); v != true {
		t.Errorf("PERSIST_WAL: %v", v)
	}
	if v, _ := c.FileControl("main", sqlite3.FCNTL_POWERSAFE_OVERWRITE); v != false {
		t.Errorf("POWERSAFE_OVERWRITE: %v", v)
	}
	execSQL(t, c, "INSERT INTO t VALUES(randomblob(10000))")
	if size := fileSize(t, path); size%65536 != 0 {
		t.Errorf("with a chunk size of 64 KiB the file has %d bytes", size)
	}
}

// byName is a base that opens files by plain names.
type byName struct {
	vfs.VFS
	names []string
}

func (b *byName) Open(name string, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	b.names = append(b.names, name)
	return &memoryFile{}, flags, nil
}

// TestOpenByName: the base opens a file by a plain name, and a temporary one without a name. Neither is wrapped.
func TestOpenByName(t *testing.T) {
	base := &byName{VFS: vfs.Find("")}
	v := newVFS(t.Name(), base, Options{})
	for name, flags := range map[string]vfs.OpenFlag{"file": vfs.OPEN_MAIN_DB, "": vfs.OPEN_TEMP_DB | vfs.OPEN_DELETEONCLOSE} {
		base.names = nil
		f, _, err := v.Open(name, flags|vfs.OPEN_READWRITE|vfs.OPEN_CREATE)
		if _, ok := f.(*memoryFile); !ok || err != nil || !slices.Equal(base.names, []string{name}) {
			t.Errorf("%q: %T, %v; the base has opened %q", name, f, err, base.names)
		}
	}
}

func TestStatsOfDatabases(t *testing.T) {
	var counted []*ringVFS // keeps all VFSes, also those of other tests, in the totals
	known.each(func(v *ringVFS) { counted = append(counted, v) })
	defer func() { runtime.KeepAlive(counted) }()
	before := Total()
	path := dbFile(t)
	c := connect(t, path, Name)
	execSQL(t, c, "PRAGMA synchronous=FULL; CREATE TABLE t(a)")
	open := slices.IndexFunc(Databases(), func(s Stats) bool { return s.Path == path && s.Syncs >= 3 && s.DirSyncs >= 1 })
	if open < 0 {
		t.Errorf("%+v", Databases())
	}
	if !strings.Contains(Vars{}.String(), path) {
		t.Error(Vars{}.String())
	}
	c.Close()
	if after := Total(); after.Syncs < before.Syncs+3 {
		t.Errorf("before %v, after %v", before, after)
	}
	if strings.Contains(Vars{}.String(), path) {
		t.Error("a closed database is still listed")
	}
}

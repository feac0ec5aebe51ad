// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
	"github.com/ringside-io/ringside/sqlitevfs/internal/grouplog"
)

// fault selects the call that fails, and its error.
type fault struct {
	nth     int // counted from 0; -1: none
	errno   syscall.Errno
	forever bool // all later calls fail too
	short   bool // half of a write is done
}

func (f fault) String() string {
	return fmt.Sprintf("call %d, %v, forever %v, short %v", f.nth, f.errno, f.forever, f.short)
}

// faulty is a base that counts the calls to the disk and makes some fail. It is the VFS
// below the one under test, and the file system of its log.
type faulty struct {
	vfs.VFS
	mu     sync.Mutex
	armed  bool
	calls  int
	fault  fault
	failed []string // the calls that failed
	// poisoned reports that a sync failed on which commits depend: all later commits must fail.
	poisoned bool
}

// call counts a call and returns the error with which it must fail, if any.
func (f *faulty) call(op, kind string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.armed {
		return nil
	}
	n := f.calls
	f.calls++
	if f.fault.nth < 0 || n != f.fault.nth && (n < f.fault.nth || !f.fault.forever) {
		return nil
	}
	f.failed = append(f.failed, op+" "+kind)
	if op == "sync" && kind != "log" {
		f.poisoned = true
	}
	return f.fault.errno
}

func (f *faulty) disarm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = false
}

// write makes a write fail, or writes half of the data.
func (f *faulty) write(kind string, p []byte, off int64, do func([]byte, int64) (int, error)) (int, error) {
	err := f.call("write", kind)
	if err == nil {
		return do(p, off)
	}
	n := 0
	if f.fault.short {
		n, _ = do(p[:len(p)/2], off)
	}
	return n, err
}

func (f *faulty) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	kind := "db"
	switch {
	case flags&vfs.OPEN_MAIN_JOURNAL != 0:
		kind = "journal"
	case flags&vfs.OPEN_WAL != 0:
		kind = "wal"
	case flags&vfs.OPEN_MAIN_DB == 0:
		return vfsutil.WrapOpenFilename(f.VFS, name, flags)
	}
	if err := f.call("open", kind); err != nil {
		return nil, flags, vfs.SystemError(err, sqlite3.CANTOPEN)
	}
	file, out, err := vfsutil.WrapOpenFilename(f.VFS, name, flags)
	if err != nil {
		return nil, out, err
	}
	return &faultyFile{file, f, kind}, out, nil
}

func (f *faulty) Delete(name string, syncDir bool) error {
	if err := f.call("delete", filepath.Base(name)); err != nil {
		return vfs.SystemError(err, sqlite3.IOERR_DELETE)
	}
	return f.VFS.Delete(name, syncDir)
}

func (f *faulty) SyncDir(dir string) error {
	if err := f.call("sync", "dir"); err != nil {
		return err
	}
	return disk.OS.SyncDir(dir)
}

// GroupLog returns options of a log that is so small that it wraps around, and that takes
// most commits.
func (f *faulty) GroupLog() grouplog.Options {
	return grouplog.Options{FS: faultyFS{disk.OS, f}, SegmentSize: 32 << 10, MaxSize: 96 << 10, MaxRecord: 24 << 10, Always: true, Local: true}
}

type faultyFile struct {
	vfs.File
	f    *faulty
	kind string
}

func (f *faultyFile) SharedMemory() vfs.SharedMemory { return vfsutil.WrapSharedMemory(f.File) }

func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	return f.f.write(f.kind, p, off, f.File.WriteAt)
}

func (f *faultyFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.f.call("read", f.kind); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *faultyFile) Truncate(size int64) error {
	if err := f.f.call("truncate", f.kind); err != nil {
		return vfs.SystemError(err, sqlite3.IOERR_TRUNCATE)
	}
	return f.File.Truncate(size)
}

func (f *faultyFile) Sync(flags vfs.SyncFlag) error {
	if err := f.f.call("sync", f.kind); err != nil {
		return err
	}
	return f.File.Sync(flags)
}

// faultyFS is the file system of the log.
type faultyFS struct {
	disk.FS
	f *faulty
}

func kindOf(name string) string {
	if strings.HasSuffix(name, suffixWAL) {
		return "wal"
	}
	return "log"
}

func (s faultyFS) Open(name string, flag disk.Flag, perm fs.FileMode) (disk.File, error) {
	if err := s.f.call("open", kindOf(name)); err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	file, err := s.FS.Open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &faultyLogFile{file, s.f, kindOf(name)}, nil
}

func (s faultyFS) Rename(a, b string) error {
	if err := s.f.call("rename", "log"); err != nil {
		return err
	}
	return s.FS.Rename(a, b)
}

func (s faultyFS) SyncDir(dir string) error {
	if err := s.f.call("sync", "log"); err != nil {
		return err
	}
	return s.FS.SyncDir(dir)
}

type faultyLogFile struct {
	disk.File
	f    *faulty
	kind string
}

func (f *faultyLogFile) WriteAt(p []byte, off int64) (int, error) {
	kind := f.kind
	if bytes.HasPrefix(p, []byte("RSGB")) {
		kind = "batch" // syncs of commits, which wait for them
	}
	return f.f.write(kind, p, off, f.File.WriteAt)
}

func (f *faultyLogFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.f.call("read", f.kind); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *faultyLogFile) Sync() error {
	if err := f.f.call("sync", f.kind); err != nil {
		return err
	}
	return f.File.Sync()
}

// faultDir returns a directory for the log, in memory if possible.
func faultDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "ringside-faults-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TestFaultSweep makes each call of the VFS and its log to the disk fail in turn, once and
// permanently.
// Promise: sqlitevfs/disk-error-fails
func TestFaultSweep(t *testing.T) {
	step := 163
	switch {
	case *long:
		step = 1
	case testing.Short():
		step = 607
	}
	for _, mode := range []string{"delete", "persist", "truncate", "wal", "wal+log"} {
		t.Run(mode, func(t *testing.T) {
			if mode == "wal+log" {
				needLog(t)
			}
			base := &faulty{VFS: vfs.Find("os")}
			name := "faulty-" + mode
			vfs.Register(name, base)
			defer vfs.Unregister(name)
			o := Options{Base: name, Logger: slog.New(slog.DiscardHandler)}
			if mode == "wal+log" {
				o.GroupLog = On
			}
			ours := register(t, o)
			dir := faultDir(t)
			s := sweep{base: base, vfs: ours, mode: strings.TrimSuffix(mode, "+log"), dir: dir}
			calls := s.run(t, fault{nth: -1})
			kinds := []fault{
				{errno: syscall.EIO}, {errno: syscall.EIO, forever: true},
				{errno: syscall.ENOSPC, short: true}, {errno: syscall.ENOSPC, short: true, forever: true},
			}
			runs := 0
			for i := 0; i < calls*len(kinds); i += step {
				f := kinds[i%len(kinds)]
				f.nth = i / len(kinds)
				s.run(t, f)
				runs++
				if t.Failed() {
					return
				}
			}
			t.Logf("%d calls, %d runs, %d acknowledged commits, %d refused, %d faults", calls, runs, s.acked, s.refused, s.faults)
		})
	}
}

// sweep is one configuration of TestFaultSweep.
type sweep struct {
	base                   *faulty
	vfs, mode, dir         string
	acked, refused, faults int
}

// run makes commits while a call fails, and checks the result. It returns the number of calls.
func (s *sweep) run(t *testing.T, f fault) int {
	t.Helper()
	entries, _ := os.ReadDir(s.dir)
	for _, e := range entries {
		os.Remove(filepath.Join(s.dir, e.Name()))
	}
	path := filepath.Join(s.dir, "db")
	stock, err := sqlite3.Open(uri(path, "os"))
	if err == nil {
		err = stock.Exec("PRAGMA page_size=1024; PRAGMA journal_mode=" + s.mode + "; CREATE TABLE t(id INTEGER PRIMARY KEY, k, v); CREATE INDEX i ON t(k); CREATE TABLE s(n); INSERT INTO s VALUES(0)")
	}
	if err == nil {
		err = stock.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	b := s.base
	b.mu.Lock()
	b.armed, b.calls, b.fault, b.failed, b.poisoned = true, 0, f, nil, false
	b.mu.Unlock()
	acked := map[int]bool{}
	for life := range 2 {
		s.life(t, path, life, acked)
	}
	b.disarm()
	s.faults += len(b.failed)
	if f.nth < 0 && len(acked) != 2*commitsInALife {
		t.Fatalf("without a fault %d commits succeeded", len(acked))
	}
	s.judge(t, path, acked)
	if t.Failed() {
		t.Logf("%s: failed %.10q", f, b.failed)
	}
	return b.calls
}

const commitsInALife = 7

// seen returns the failures so far. The log's own goroutine may add to them.
func (f *faulty) seen() (failed []string, poisoned bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.failed), f.poisoned
}

// life is the time from the first connection to the last close.
func (s *sweep) life(t *testing.T, path string, life int, acked map[int]bool) {
	t.Helper()
	b := s.base
	b.mu.Lock()
	b.poisoned = false
	b.mu.Unlock()
	c, err := sqlite3.Open(uri(path, s.vfs))
	if err != nil {
		s.refused++
		return
	}
	defer c.Close()
	if err := c.Exec("PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=12; PRAGMA cache_size=8; PRAGMA journal_mode=" + s.mode); err != nil {
		s.refused++
		return
	}
	// The goroutine of the log also syncs WALs. A commit that has begun by then may
	// succeed.
	lastPoisoned := false
	for i := range commitsInALife {
		n := life*commitsInALife + i
		before, poisoned := b.seen()
		wasPoisoned := lastPoisoned
		lastPoisoned = poisoned
		size := 300
		if i%3 == 2 {
			size = 20_000 // more than the cache holds
		}
		err := c.Exec(fmt.Sprintf("BEGIN; INSERT INTO t VALUES(%d, hex(randomblob(8)), randomblob(%d)); UPDATE t SET v=randomblob(300) WHERE id=%d; UPDATE s SET n=n+1; COMMIT", n, size, n-2))
		if err != nil {
			s.refused++
			if !c.GetAutocommit() {
				c.Exec("ROLLBACK")
			}
			if failed, _ := b.seen(); len(failed) == 0 {
				t.Errorf("commit %d failed although no call had failed: %v", n, err)
			}
			continue
		}
		acked[n] = true
		s.acked++
		if poisoned && wasPoisoned {
			t.Errorf("commit %d succeeded after a failed sync", n)
		}
		failed, _ := b.seen()
		for _, what := range failed[len(before):] {
			if !s.silent(what) {
				t.Errorf("commit %d succeeded although a call failed: %s", n, what)
			}
		}
	}
}

// silent reports whether a failure needs no error. In a checkpoint after a commit, SQLite
// tries again later. A journal that cannot be read counts as hot. Without a log, commits
// sync their WAL.
func (s *sweep) silent(what string) bool {
	op, kind, _ := strings.Cut(what, " ")
	if kind == "log" || kind == "batch" || what == "open journal" {
		return true
	}
	return s.mode == "wal" && (kind == "db" || op == "truncate" || op == "sync" || op == "read" || op == "open" || op == "delete")
}

// judge checks with stock SQLite that each acknowledged commit is there, and that no commit
// is incomplete.
func (s *sweep) judge(t *testing.T, path string, acked map[int]bool) {
	t.Helper()
	c, err := sqlite3.Open(uri(path, "os"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	wantQuery(t, c, "PRAGMA integrity_check", "ok")
	wantQuery(t, c, "SELECT n-(SELECT count(*) FROM t) FROM s", "0")
	for n := range acked {
		wantQuery(t, c, fmt.Sprintf("SELECT count(*) FROM t WHERE id=%d", n), "1")
	}
}

// SPDX-License-Identifier: MIT

package grouplog

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/walformat"
	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
)

const testPage = 512

// needLocks skips a test where files do not support the locks that the log needs.
func needLocks(t testing.TB) {
	t.Helper()
	f, err := disk.OS.Open(filepath.Join(t.TempDir(), "lock"), disk.Create, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.TryLock(0, 1); err != nil {
		t.Skip("no locks of open files:", err)
	}
}

// testWAL writes a WAL as SQLite does.
type testWAL struct {
	t      testing.TB
	path   string
	file   *os.File
	header []byte
	parsed Header
	sum    checksum
	off    int64
	wal    *WAL

	commits [][]byte // since the header was written
	acked   int      // of these frames
}

func newTestWAL(t testing.TB, dir, name string) *testWAL {
	t.Helper()
	db := filepath.Join(dir, name)
	if err := os.WriteFile(db, []byte("database"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(db+"-wal", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	w := &testWAL{t: t, path: db + "-wal", file: f}
	w.restart()
	return w
}

// restart begins a new generation of the WAL.
func (w *testWAL) restart() {
	h := make([]byte, walHeaderSize)
	be.PutUint32(h, walformat.Magic|uint32(rand.IntN(2)))
	be.PutUint32(h[4:], walformat.Version)
	be.PutUint32(h[8:], testPage)
	be.PutUint32(h[12:], w.parsed.Checkpoint+1)
	be.PutUint64(h[16:], rand.Uint64())
	sum := checksum{}.Add(h[:24], be.Uint32(h)&1 != 0)
	be.PutUint32(h[24:], sum[0])
	be.PutUint32(h[28:], sum[1])
	p, err := ParseHeader(h)
	if err != nil {
		w.t.Fatal(err)
	}
	w.header, w.parsed, w.sum, w.off = h, p, p.sum, walHeaderSize
	w.commits, w.acked = nil, 0
	if _, err := w.file.WriteAt(h, 0); err != nil {
		w.t.Fatal(err)
	}
}

// anew begins a new generation of the WAL, as SQLite does after a checkpoint.
func (w *testWAL) anew() {
	h := w.header
	be.PutUint32(h[12:], w.parsed.Checkpoint+1)
	be.PutUint32(h[16:], be.Uint32(h[16:])+1)
	be.PutUint32(h[20:], rand.Uint32())
	sum := checksum{}.Add(h[:24], w.parsed.big)
	be.PutUint32(h[24:], sum[0])
	be.PutUint32(h[28:], sum[1])
	p, err := ParseHeader(h)
	if err != nil {
		w.t.Fatal(err)
	}
	w.parsed, w.sum, w.off, w.commits, w.acked = p, p.sum, walHeaderSize, nil, 0
	if _, err := w.file.WriteAt(h, 0); err != nil {
		w.t.Fatal(err)
	}
}

// transaction makes the frames of a commit at the end of the WAL, without writing them.
func (w *testWAL) transaction(pages int) ([]byte, checksum) {
	var p []byte
	sum := w.sum
	for i := range pages {
		f := make([]byte, w.parsed.frame())
		be.PutUint32(f, uint32(1+rand.IntN(1000)))
		if i == pages-1 {
			be.PutUint32(f[4:], 1000)
		}
		copy(f[8:], w.parsed.Salt[:])
		for j := frameHeaderSize; j < len(f); j += 8 {
			le.PutUint64(f[j:], rand.Uint64())
		}
		sum = sum.Add(f[:8], w.parsed.big).Add(f[frameHeaderSize:], w.parsed.big)
		be.PutUint32(f[16:], sum[0])
		be.PutUint32(f[20:], sum[1])
		p = append(p, f...)
	}
	return p, sum
}

// append writes a commit to the WAL.
func (w *testWAL) append(pages int) (frames []byte, off int64) {
	frames, sum := w.transaction(pages)
	off = w.off
	if _, err := w.file.WriteAt(frames, off); err != nil {
		w.t.Fatal(err)
	}
	w.sum, w.off = sum, off+int64(len(frames))
	w.commits = append(w.commits, frames)
	return frames, off
}

// commit writes a commit and makes it durable by the log.
func (w *testWAL) commit(pages int) error {
	frames, off := w.append(pages)
	_, err := w.wal.Commit(w.header, off, frames)
	if err == nil {
		w.acked = len(w.commits)
	}
	return err
}

func (w *testWAL) attach(l *Log) {
	w.t.Helper()
	var err error
	if w.wal, err = l.Attach(w.path); err != nil {
		w.t.Fatal(err)
	}
	w.wal.SyncedTo(w.parsed, w.off) // Attach has synced the WAL
}

// holds returns the number of commits in the file, and fails the test if there is other
// data between them.
func (w *testWAL) holds() int {
	w.t.Helper()
	p, err := os.ReadFile(w.path)
	if err != nil {
		w.t.Fatal(err)
	}
	if !bytes.HasPrefix(p, w.header) {
		return 0
	}
	p = p[walHeaderSize:]
	for i, c := range w.commits {
		if !bytes.HasPrefix(p, c) {
			return i
		}
		p = p[len(c):]
	}
	return len(w.commits)
}

// check fails the test when the file lacks an acknowledged commit.
func (w *testWAL) check() {
	w.t.Helper()
	if n := w.holds(); n < w.acked {
		w.t.Errorf("%s holds %d commits, %d were acknowledged", filepath.Base(w.path), n, w.acked)
	}
}

// lose truncates the WAL to its header and the first commits.
func (w *testWAL) lose(keep int) {
	size := int64(walHeaderSize)
	for _, c := range w.commits[:keep] {
		size += int64(len(c))
	}
	if err := w.file.Truncate(size); err != nil {
		w.t.Fatal(err)
	}
}

func mustOpen(t testing.TB, dir string, o Options) (*Log, Report) {
	t.Helper()
	l, r, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return l, r
}

func mustClose(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// crash ends a log as the death of its process does.
func crash(l *Log) {
	l.mu.Lock()
	l.closed = true
	for l.queue.Leading() {
		l.idle.Wait()
	}
	l.changed.Broadcast()
	l.mu.Unlock()
	close(l.quit)
	l.provider.Wait()
	for w := range l.wals {
		w.file.Close()
	}
	l.file.Close()
}

// cutFS is a disk that records the content of files at their last sync, and can make calls
// fail.
type cutFS struct {
	disk.FS
	mu      sync.Mutex
	durable map[string][]byte
	fail    func(op, name string, off int64) error
}

func newCutFS() *cutFS { return &cutFS{FS: disk.OS, durable: map[string][]byte{}} }

func (c *cutFS) check(op, name string, off int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fail == nil {
		return nil
	}
	if err := c.fail(op, name, off); err != nil {
		return &fs.PathError{Op: op, Path: name, Err: err}
	}
	return nil
}

func (c *cutFS) Open(name string, flag disk.Flag, perm fs.FileMode) (disk.File, error) {
	if err := c.check("open", name, 0); err != nil {
		return nil, err
	}
	f, err := c.FS.Open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &cutFile{File: f, fs: c, name: name}, nil
}

func (c *cutFS) Rename(a, b string) error {
	if err := c.check("rename", b, 0); err != nil {
		return err
	}
	return c.FS.Rename(a, b)
}

func (c *cutFS) SyncDir(dir string) error {
	if err := c.check("syncdir", dir, 0); err != nil {
		return err
	}
	return c.FS.SyncDir(dir)
}

// cut resets a file to its content at the last sync.
func (c *cutFS) cut(t testing.TB, name string) {
	t.Helper()
	if err := os.WriteFile(name, c.durable[name], 0o600); err != nil {
		t.Fatal(err)
	}
}

type cutFile struct {
	disk.File
	fs   *cutFS
	name string
}

func (f *cutFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.fs.check("write", f.name, off); err != nil {
		n := 0
		if err := err.(*fs.PathError); err.Err == syscall.ENOSPC {
			n, _ = f.File.WriteAt(p[:len(p)/2/block*block], off) // a short write
		}
		return n, err
	}
	return f.File.WriteAt(p, off)
}

func (f *cutFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.fs.check("read", f.name, off); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *cutFile) Sync() error {
	if err := f.fs.check("sync", f.name, 0); err != nil {
		return err
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	p, err := os.ReadFile(f.name)
	if err != nil {
		return err
	}
	f.fs.durable[f.name] = p
	return f.File.Sync()
}

func small() Options { return Options{SegmentSize: 32 << 10, MaxSize: 96 << 10} }

func wals(t testing.TB, dir string, n int) []*testWAL {
	var all []*testWAL
	for i := range n {
		all = append(all, newTestWAL(t, dir, fmt.Sprintf("db%d", i)))
	}
	return all
}

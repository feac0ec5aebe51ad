// SPDX-License-Identifier: MIT

package ufile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// lazyFile opens a new file of 10 000 bytes, and skips where its file system has no lazy files.
func lazyFile(t *testing.T, flag int) *File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(strings.Repeat("0123456789", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFile(name, flag, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if !f.lazy {
		t.Skip("the file system of the temporary directory does not support RWF_NOWAIT")
	}
	return f
}

// TestLazyFile reads a file without an os.File. The other methods then have the position, the
// flags and the errors of an os.File.
func TestLazyFile(t *testing.T) {
	f := lazyFile(t, os.O_RDWR|os.O_APPEND)
	p := make([]byte, 10)
	if n, err := f.ReadAt(p, 20); n != 10 || err != nil || string(p) != "0123456789" {
		t.Fatalf("ReadAt = %d, %v, %q", n, err, p[:n])
	}
	if n, err := f.ReadAt(p, 9995); n != 5 || err != io.EOF {
		t.Errorf("ReadAt at the end = %d, %v", n, err)
	}
	if f.file.Load() != nil {
		t.Error("ReadAt made an os.File")
	}
	theirs, err := os.OpenFile(f.Name(), os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	if got, want := methodsOf(f), methodsOf(theirs); got != want {
		t.Errorf("methods answer\n%s\nand those of os.File\n%s", got, want)
	}
	if once := f.OSFile(); once != f.OSFile() {
		t.Error("two calls of OSFile return two files")
	}
	theirs.Close()
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if got, want := methodsOf(f), methodsOf(theirs); got != want {
		t.Errorf("after Close methods answer\n%s\nand those of os.File\n%s", got, want)
	}
}

// methodsOf calls methods that File and os.File share, and returns what they answer.
func methodsOf(f interface {
	io.ReadWriteSeeker
	io.WriterAt
	Name() string
	Stat() (fs.FileInfo, error)
	Fd() uintptr
	SetDeadline(time.Time) error
	SyscallConn() (syscall.RawConn, error)
	ReadDir(int) ([]fs.DirEntry, error)
	Chmod(fs.FileMode) error
}) string {
	var s strings.Builder
	p := make([]byte, 4)
	n, err := f.Read(p)
	fmt.Fprintln(&s, n, err, string(p))
	off, err := f.Seek(3, io.SeekCurrent)
	fmt.Fprintln(&s, off, err)
	n, err = f.WriteAt(p, 1)
	fmt.Fprintln(&s, n, err)
	_, err = f.ReadDir(-1)
	fmt.Fprintln(&s, err, f.SetDeadline(time.Now()), f.Chmod(0o640))
	info, err := f.Stat()
	if err == nil {
		fmt.Fprintln(&s, info.Name(), info.Size(), info.Mode())
	}
	conn, connErr := f.SyscallConn()
	if connErr == nil {
		connErr = conn.Control(func(uintptr) {})
	}
	fmt.Fprintln(&s, f.Name(), err, connErr, f.Fd() != ^uintptr(0))
	return s.String()
}

// TestLazyFileClosed uses a File that was closed before it had an os.File.
func TestLazyFileClosed(t *testing.T) {
	f := lazyFile(t, os.O_RDONLY)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	_, readErr := f.Read(make([]byte, 1))
	_, statErr := f.Stat()
	for _, err := range []error{readErr, statErr, f.Sync(), f.Datasync(), f.Close()} {
		var e *fs.PathError
		if !errors.As(err, &e) || e.Path != f.Name() || !errors.Is(err, os.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

// TestLazyFileRaces closes a file while its os.File is made. Afterwards the descriptor, which
// belongs to either, is closed.
func TestLazyFileRaces(t *testing.T) {
	for range 200 {
		f := lazyFile(t, os.O_RDONLY)
		fd := f.fd
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if _, err := f.Stat(); err != nil && !errors.Is(err, os.ErrClosed) {
					t.Error(err)
				}
			})
		}
		wg.Go(func() {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if names(fd, f.Name()) {
			t.Fatal("the descriptor is open after Close")
		}
	}
}

// names reports whether a descriptor is open for a file.
func names(fd int, file string) bool {
	link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	return err == nil && link == file
}

// TestLazyFileDropped drops files without Close: the descriptors are closed, except that of the
// os.File that is in use.
func TestLazyFileDropped(t *testing.T) {
	drop := func(use func(*File)) (fd int, name string) {
		f := lazyFile(t, os.O_RDONLY)
		opened, err := Open(f.Name()) // lazyFile closes its own at the end
		if err != nil {
			t.Fatal(err)
		}
		use(opened)
		return opened.fd, opened.name
	}
	var kept *os.File
	used, usedName := drop(func(f *File) { kept = f.OSFile() })
	for _, use := range []func(*File){func(*File) {}, func(f *File) { f.ReadAt(make([]byte, 10), 0) }, func(f *File) { f.Stat() }} {
		fd, name := drop(use)
		for deadline := time.Now().Add(time.Minute); names(fd, name); runtime.Gosched() {
			if runtime.GC(); time.Now().After(deadline) {
				t.Fatal("a descriptor is still open")
			}
		}
	}
	if !names(used, usedName) {
		t.Error("the descriptor of an os.File in use was closed")
	}
	kept.Close()
}

// TestFirstReadWithODirect compares the first read of a file with that of an os.File: at the end, behind
// it, and with what O_DIRECT refuses.
func TestFirstReadWithODirect(t *testing.T) {
	f := lazyFile(t, os.O_RDONLY|syscall.O_DIRECT)
	backend, _ := Backend() // without a ring the kind of a file is known
	for _, r := range []struct{ off, n int64 }{
		{0, 4096}, {4096, 4096}, {8192, 4096}, {4096, 8192}, {16384, 4096}, {100, 4096}, {0, 100}, {-4096, 4096}, {0, 0},
	} {
		theirs, err := os.OpenFile(f.Name(), os.O_RDONLY|syscall.O_DIRECT, 0)
		if err != nil {
			t.Fatal(err)
		}
		ours, err := OpenFile(f.Name(), os.O_RDONLY|syscall.O_DIRECT, 0)
		if err != nil {
			t.Fatal(err)
		}
		p, q := AlignedBuffer(8192)[:r.n], AlignedBuffer(8192)[:r.n]
		n, err := ours.ReadAt(p, r.off)
		m, want := theirs.ReadAt(q, r.off)
		if n != m || string(p[:n]) != string(q[:m]) || fmt.Sprint(err) != fmt.Sprint(want) {
			t.Errorf("%d bytes at %d: %d, %v, want %d, %v", r.n, r.off, n, err, m, want)
		}
		asked := backend == ModeRing.String() && ours.kind.Load() != uint32(kindUnknown)
		if n == int(r.n) && n > 0 && (asked || ours.Stats() != Stats{Plain: 1}) {
			t.Errorf("%d bytes at %d: stats %+v, asked for the file system: %v; want one plain call", r.n, r.off, ours.Stats(), asked)
		}
		ours.Close()
		theirs.Close()
	}
}

// TestNotLazy opens files that package os must open: it registers some with the netpoller, and
// creates others.
func TestNotLazy(t *testing.T) {
	dir := t.TempDir()
	fifo, file := filepath.Join(dir, "fifo"), filepath.Join(dir, "file")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		flag int
	}{
		{fifo, os.O_RDWR}, {dir, os.O_RDONLY}, {"/dev/null", os.O_RDWR}, {"/proc/self/mounts", os.O_RDONLY},
		{file, os.O_WRONLY}, {file, os.O_RDWR | os.O_CREATE}, {file, syscall.O_NONBLOCK}, {file, syscall.O_NOFOLLOW},
	} {
		f, err := OpenFile(c.name, c.flag, 0o600)
		if err != nil {
			t.Error(err)
			continue
		}
		theirs, err := os.OpenFile(c.name, c.flag, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := f.SetDeadline(time.Time{}), theirs.SetDeadline(time.Time{}); f.lazy || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s, flags %#x: lazy %v, SetDeadline %v, of os.File %v", c.name, c.flag, f.lazy, got, want)
		}
		f.Close()
		theirs.Close()
	}
	for _, name := range []string{"", "none", "nul\x00byte", file + "/none"} {
		_, got := Open(name)
		if _, want := os.Open(name); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("Open of %q: %v, os.Open: %v", name, got, want)
		}
	}
	testLogged = func() bool { return true }
	defer func() { testLogged = func() bool { return false } }()
	f, err := Open(file)
	if err != nil || f.lazy {
		t.Errorf("under go test with a cache, Open does not use os.Open (%v)", err)
	}
	f.Close()
}

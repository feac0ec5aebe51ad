// SPDX-License-Identifier: MIT

package fusefs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/ufile"
)

// modes are the ways to read a file: os, and each mode of ufile.
var modes = []string{"os", "auto", "ring", "syscall"}

// openFile opens a file in a mode. With blocking it first clears O_NONBLOCK, which os sets on files
// of FUSE.
func openFile(s *ufile.System, path string, flag int, blocking bool) (file, error) {
	f, err := os.OpenFile(path, flag, 0)
	if err != nil {
		return nil, err
	}
	if blocking {
		if err := syscall.SetNonblock(int(f.Fd()), false); err != nil {
			return nil, err
		}
	}
	if s == nil {
		return f, nil
	}
	return s.NewFile(f)
}

// file is the common interface of os.File and ufile.File.
type file interface {
	io.ReadWriteSeeker
	io.ReaderAt
	io.WriterAt
	io.Closer
	Sync() error
	Stat() (fs.FileInfo, error)
	Truncate(int64) error
}

// system returns the system of a mode, or nil for os.
func system(mode string) (*ufile.System, error) {
	switch mode {
	case "os":
		return nil, nil
	case "auto":
		return ufile.NewSystem(ufile.Options{})
	case "ring":
		return ufile.NewSystem(ufile.Options{Mode: ufile.ModeRing})
	case "syscall":
		return ufile.NewSystem(ufile.Options{Mode: ufile.ModePlain})
	}
	return nil, fmt.Errorf("no mode %q", mode)
}

// TestSilentFiles reads and writes files that do not answer, with every call of ufile, in another
// process. Meanwhile the other goroutines of that process must make progress, and the garbage
// collector must run. Close must wait. Once the files answer, all calls must return the right
// bytes. It uses another process because a failure freezes the process.
// Promise: ufile/file-answer-blocks
func TestSilentFiles(t *testing.T) {
	c := mountFUSE(t)
	for _, mode := range modes {
		for _, cache := range []string{"direct", "cached"} {
			t.Run(mode+"/"+cache, func(t *testing.T) {
				if mode == "ring" {
					ringtest.NeedRing(t)
				}
				silent(t, c, mode, c.Path(cache, "silent", mode), true)
			})
		}
	}
}

// TestSilentFilesBelowOverlay is TestSilentFiles on an overlay whose lower directory is in user
// space.
// Promise: ufile/file-answer-blocks
func TestSilentFilesBelowOverlay(t *testing.T) {
	c := mountFUSE(t)
	base := tmpfs(t)
	upper, work, merged := filepath.Join(base, "upper"), filepath.Join(base, "work"), filepath.Join(base, "merged")
	for _, dir := range []string{upper, work, merged} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	mountOrSkip(t, "overlay", "overlay", merged, "lowerdir="+c.Dir+",upperdir="+upper+",workdir="+work)
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			if mode == "ring" {
				ringtest.NeedRing(t)
			}
			// A ring has few worker threads, so that not all reads reach the server.
			silent(t, c, mode, filepath.Join(merged, "direct-silent-overlay-"+mode), mode != "ring")
		})
	}
}

// TestReadFilesBesideSilentOpens reads files of which two do not return from open, one of them in the
// first batch of a ring: only the files of their batches wait. It uses another process, because ufile
// uses package os in a process whose files "go test" records.
func TestReadFilesBesideSilentOpens(t *testing.T) {
	c := mountFUSE(t)
	if err := c.Hold(); err != nil {
		t.Fatal(err)
	}
	const batch, files = 32, 2000
	dir, names := tmpfs(t), make([]string, files)
	for i := range names {
		names[i] = filepath.Join(dir, strconv.Itoa(i))
		if err := os.WriteFile(names[i], []byte(names[i]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range []int{5, 1000} {
		names[i] = c.Path("cached", "mute", strconv.Itoa(i))
		if _, err := os.Stat(names[i]); err != nil { // so that the kernel knows the name
			t.Fatal(err)
		}
	}
	child, in, out := start(t, roleFiles, names...)
	defer in.Close()
	defer out.Close()
	defer child.Wait()
	release := func() {
		if err := c.Release(); err != nil {
			t.Error(err)
		}
	}
	timer := time.AfterFunc(ringtest.Patience, func() { t.Error("the other files wait"); release() })
	n := 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if text := lines.Text(); text != "read" {
			t.Error(text)
		}
		if n++; n == files-2*batch && timer.Stop() {
			release()
		}
	}
	if n != files {
		t.Errorf("%d files", n)
	}
}

// filesReader is the process of TestReadFilesBesideSilentOpens. The content of a file in memory is its
// name.
func filesReader(names []string) {
	for d := range ufile.ReadFiles(context.Background(), names, ufile.ReadFilesOptions{}) {
		if d.Err != nil || string(d.Data) != d.Name && len(d.Data) != Size {
			fmt.Printf("%s: %d bytes, %v\n", d.Name, len(d.Data), d.Err)
			continue
		}
		fmt.Println("read")
	}
}

// silent runs silentReader and checks its results.
func silent(t *testing.T, c *Control, mode, prefix string, all bool) {
	if err := c.Hold(); err != nil {
		t.Fatal(err)
	}
	child, in, out := start(t, roleReads, mode, prefix)
	defer in.Close()
	defer out.Close()
	var timedOut atomic.Bool
	timer := time.AfterFunc(ringtest.Patience, func() {
		timedOut.Store(true)
		child.Process.Kill()
	})
	defer timer.Stop()
	answers := bufio.NewScanner(out)
	next := func(want string) string {
		t.Helper()
		if !answers.Scan() {
			if timedOut.Load() {
				waiting, _ := c.Waiting()
				t.Fatalf("the process is frozen before %q; the server has %d reads", want, waiting)
			}
			t.Fatalf("the process has ended before %q", want)
		}
		if word, rest, _ := strings.Cut(answers.Text(), " "); word == want {
			return rest
		}
		t.Fatalf("the process printed %q, want %q", answers.Text(), want)
		return ""
	}
	defer child.Wait()
	defer child.Process.Kill()
	calls, err := strconv.Atoi(next("started"))
	if err != nil {
		t.Fatal(err)
	}
	if !all {
		calls = 1
	}
	for waiting := 0; waiting < calls; {
		if waiting, err = c.Waiting(); err != nil {
			t.Fatal(err)
		}
		if timedOut.Load() {
			t.Fatalf("%d of %d calls have reached the server", waiting, calls)
		}
		time.Sleep(time.Millisecond) // the server is asked again
	}
	tell := func(command string) {
		t.Helper()
		if _, err := fmt.Fprintln(in, command); err != nil {
			t.Fatal(err)
		}
	}
	tell("tick")
	next("ticked")
	tell("close")
	if closed := next("closing"); closed != "0" && mode != "os" {
		t.Errorf("Close of %s files did not wait for their reads", closed)
	}
	if err := c.Release(); err != nil {
		t.Fatal(err)
	}
	for answers.Scan() {
		if answers.Text() == "over" {
			return
		}
		t.Error(answers.Text())
	}
	t.Error("the process has ended before all calls have")
}

// silentReader is the process of TestSilentFiles. It reads commands from standard input and
// replies with lines: "started", with the number of calls waiting in the server, "ticked"
// and "closing" when these are done, an error message, and "over".
func silentReader(mode, prefix string) {
	runtime.GOMAXPROCS(2)
	r := &reader{prefix: prefix, cancel: func() {}}
	var err error
	if r.sys, err = system(mode); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	r.startAll()
	fmt.Println("started", r.calls)
	for commands := bufio.NewScanner(os.Stdin); commands.Scan(); {
		switch commands.Text() {
		case "tick":
			r.cancel()
			tick()
			fmt.Println("ticked")
		case "close":
			for i, f := range r.files {
				r.wg.Go(func() {
					if err := f.Close(); err != nil {
						r.wrong("Close: %v", err)
					}
					if i >= r.reads { // Close of os waits for Read only if the file is pollable
						r.closed.Add(1)
					}
				})
			}
			tick()
			fmt.Println("closing", max(r.closed.Load()-r.dropped.Load(), 0))
			r.wg.Wait()
			fmt.Println("over")
		}
	}
}

// tick passes a token between goroutines on all processors, and runs the garbage collector.
func tick() {
	const goroutines, rounds = 16, 500
	ring := make([]chan int, goroutines)
	for i := range ring {
		ring[i] = make(chan int, 1)
	}
	var wg sync.WaitGroup
	for i := range ring {
		wg.Go(func() {
			for range rounds {
				ring[(i+1)%goroutines] <- <-ring[i]
			}
		})
	}
	ring[0] <- 1
	wg.Wait()
	runtime.GC()
}

// reader has calls that wait.
type reader struct {
	sys     *ufile.System // nil for os
	prefix  string
	calls   int // seen by the server at the same time
	files   []file
	reads   int // so many files, the first ones, are read with Read
	wg      sync.WaitGroup
	closed  atomic.Int64 // files that are closed
	dropped atomic.Int64 // files of calls that were cancelled before they reached the server
	cancel  func()       // the contexts of calls
	out     sync.Mutex
}

func (r *reader) wrong(format string, args ...any) {
	r.out.Lock()
	defer r.out.Unlock()
	fmt.Println("wrong: " + fmt.Sprintf(format, args...))
}

// open opens another file.
func (r *reader) open(flag int, blocking bool) file {
	f, err := openFile(r.sys, r.prefix+"-"+strconv.Itoa(len(r.files)), r.flag()|flag, blocking)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	r.files = append(r.files, f)
	return f
}

// flag returns the flags for opening files. An overlay would read the whole file when it is opened
// for writing.
func (r *reader) flag() int {
	if strings.Contains(r.prefix, "-overlay-") {
		return os.O_RDONLY
	}
	return os.O_RDWR
}

// piece is the size of a read.
const piece = 4096

// direct is O_DIRECT.
const direct = syscall.O_DIRECT

func (r *reader) check(what string, p []byte, n int, err error) {
	if n != piece || err != nil {
		r.wrong("%s: %d, %v", what, n, err)
		return
	}
	for i, b := range p[:n] {
		if b != Byte(int64(i)) {
			r.wrong("%s: byte %d is %d, want %d", what, i, b, Byte(int64(i)))
			return
		}
	}
}

// call makes a call on a new goroutine.
func (r *reader) call(do func()) {
	r.calls++
	r.wg.Go(do)
}

func (r *reader) startAll() {
	for range 2 {
		f := r.open(0, false)
		r.call(func() {
			p := make([]byte, piece)
			n, err := f.Read(p)
			r.check("Read", p, n, err)
		})
	}
	r.reads = len(r.files)
	for i := range 16 {
		flag := 0
		if i%4 >= 2 && r.flag() == os.O_RDWR { // an overlay forwards this to the lower file system
			flag = direct
		}
		f := r.open(flag, i%2 == 1)
		r.call(func() {
			p := ufile.AlignedBuffer(piece)
			n, err := f.ReadAt(p, 0)
			r.check("ReadAt", p, n, err)
		})
	}
	if strings.Contains(r.prefix, "direct-") && r.flag() == os.O_RDWR { // other files write to the page cache
		for range 4 {
			f := r.open(0, false)
			r.call(func() {
				if n, err := f.WriteAt(make([]byte, piece), 0); n != piece || err != nil {
					r.wrong("WriteAt: %d, %v", n, err)
				}
			})
		}
	}
	if r.sys != nil {
		r.startOwn()
	}
}

// startOwn starts the calls that os does not have.
func (r *reader) startOwn() {
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(context.Background())
	for range 2 {
		f := r.open(0, false).(*ufile.File)
		r.call(func() {
			p := make([]byte, piece)
			n, err := f.ReadAtContext(ctx, p, 0)
			if n == 0 && errors.Is(err, context.Canceled) {
				r.dropped.Add(1) // a ring's worker had not begun it: Close does not wait
				return
			}
			r.check("ReadAtContext", p, n, err)
		})
	}
	for range 2 {
		f := r.open(0, false).(*ufile.File)
		r.call(func() {
			rd := ufile.NewReader(f, ufile.ReaderOptions{BlockSize: piece})
			p := make([]byte, piece)
			n, err := rd.Read(p)
			r.check("Reader", p, n, err)
			if err := rd.Close(); err != nil {
				r.wrong("Reader.Close: %v", err)
			}
		})
	}
	ranges := make([]ufile.Range, 8)
	for i := range ranges {
		ranges[i] = ufile.Range{File: r.open(0, false).(*ufile.File), Buf: make([]byte, piece)}
	}
	b, err := r.sys.NewBatch(ufile.BatchOptions{})
	if err != nil {
		r.wrong("NewBatch: %v", err)
		return
	}
	r.calls += len(ranges) - 1
	r.call(func() {
		if err := b.Read(ranges); err != nil {
			r.wrong("Batch: %v", err)
		}
		for i := range ranges {
			r.check("Batch", ranges[i].Buf, ranges[i].N, ranges[i].Err)
		}
		if err := b.Close(); err != nil {
			r.wrong("Batch.Close: %v", err)
		}
	})
	r.startCopy()
	r.startRoot()
}

func (r *reader) startCopy() {
	src := r.open(0, false).(*ufile.File)
	dst, err := os.CreateTemp("", "fusefs")
	if err != nil {
		r.wrong("%v", err)
		return
	}
	os.Remove(dst.Name())
	r.call(func() {
		defer dst.Close()
		n, err := ufile.CopyRange(context.Background(), dst, 0, src, 0, piece, ufile.CopyOptions{})
		p := make([]byte, piece)
		if n, err := dst.ReadAt(p, 0); n != piece || err != nil {
			r.wrong("CopyRange wrote %d bytes: %v", n, err)
		}
		r.check("CopyRange", p, int(n), err)
	})
}

func (r *reader) startRoot() {
	root, err := r.sys.OpenRoot(filepath.Dir(r.prefix))
	if err != nil {
		r.wrong("OpenRoot: %v", err)
		return
	}
	f, err := root.OpenFile(filepath.Base(r.prefix)+"-root", r.flag(), 0)
	if err != nil {
		r.wrong("Root.OpenFile: %v", err)
		return
	}
	r.files = append(r.files, f)
	r.call(func() {
		defer root.Close()
		p := make([]byte, piece)
		n, err := f.ReadAt(p, 0)
		r.check("Root's ReadAt", p, n, err)
	})
}

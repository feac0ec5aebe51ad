// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/ufile"
	"github.com/ringside-io/ringside/uring"
)

// needFilesRing skips the test where ReadFiles opens no rings.
func needFilesRing(t *testing.T) {
	t.Helper()
	needRing(t)
	ringtest.NeedOp(t, uring.OpOpenAt2, "5.6")
}

// ringsOpened counts the rings that use opens.
func ringsOpened(use func()) int {
	var n atomic.Int64
	stop := ringtest.OnFD(func(_ int, opened bool) {
		if opened {
			n.Add(1)
		}
	})
	use()
	stop()
	return int(n.Load())
}

// smallFiles creates n files of 8 KiB with different contents.
func smallFiles(t *testing.T, n int) (names []string) {
	t.Helper()
	dir, content := t.TempDir(), random(8192)
	for i := range n {
		name := filepath.Join(dir, fmt.Sprint(i))
		copy(content, name)
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// TestReadFilesByRing reads what a ring reads and what it passes on: files of all sizes, cached or
// not, and names of everything else that has a name.
//
// Promise: ufile/files-read-once
func TestReadFilesByRing(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := errors.Join(os.WriteFile("file", random(5000), 0o600), os.WriteFile("closed", random(10), 0),
		os.Symlink("file", "link"), os.Symlink("loop", "loop"), os.Symlink("none", "dangling"),
		os.WriteFile("other", random(64<<10-1), 0o600)); err != nil {
		t.Fatal(err)
	}
	strange := []string{"file", "closed", "link", "loop", "dangling", "other", "none", "file/none", "", "a\x00b", ".",
		strings.Repeat("x", 300), strings.Repeat("x/", 3000), "/dev/null", "/proc/filesystems", "/proc/self/mounts", "./file", dir + "/link"}
	names := append(manyFiles(t, 140), strange...)
	names = append(append(names, manyFiles(t, 70)...), strange...)
	hot := append(smallFiles(t, 300), strange...)
	cold := smallFiles(t, 600)
	for _, name := range cold {
		forgetCached(t, name)
	}
	// Cold files, then hot ones: rings are tried again.
	mixed := append(cold, hot...)
	overModes(t, func(t *testing.T, s *ufile.System) {
		for _, o := range []ufile.ReadFilesOptions{{}, {Files: 64, Memory: 1}, {Files: 33}} {
			readAll(t, s, names, o)
			readAll(t, s, mixed, o)
			readAll(t, s, hot, o)
		}
	})
}

// TestReadFilesHotByRing checks that cached files need four submissions for 32 of them.
func TestReadFilesHotByRing(t *testing.T) {
	needFilesRing(t)
	names := smallFiles(t, 320)
	needNoWait(t, names[0])
	s := newSystem(t, ufile.Options{})
	for range 20 { // memory may be reclaimed
		before := s.Stats()
		n := ringsOpened(func() { readAll(t, s, names, ufile.ReadFilesOptions{Files: 64}) })
		if n != 2 {
			t.Fatalf("%d rings were opened, want 2", n)
		}
		if got := s.Stats(); got.Plain == before.Plain && got.Cached == before.Cached+uint64(len(names)) {
			return
		}
	}
	t.Errorf("cached files are read otherwise: %+v", s.Stats())
}

// TestReadFilesWithoutRings has no rings where the options forbid them, or for few files.
func TestReadFilesWithoutRings(t *testing.T) {
	needFilesRing(t)
	names := smallFiles(t, 100)
	for what, s := range map[string]*ufile.System{
		"restricted": newSystem(t, ufile.Options{Restrict: true}),
		"plain":      newSystem(t, ufile.Options{Mode: ufile.ModePlain}),
		"few":        newSystem(t, ufile.Options{}),
	} {
		part := names
		if what == "few" {
			part = names[:63]
		}
		if n := ringsOpened(func() { readAll(t, s, part, ufile.ReadFilesOptions{}) }); n != 0 {
			t.Errorf("%s: %d rings", what, n)
		}
	}
}

// TestReadFilesBound checks how many files are open at a time, and that a loop that is slow to ask
// for the next file, and loops that are left, do no harm.
func TestReadFilesBound(t *testing.T) {
	needFilesRing(t)
	names := append(smallFiles(t, 400), manyFiles(t, 70)...)
	before := len(ringtest.Descriptors(t, ""))
	for i := range ringtest.Rounds(20, 8) {
		n := 0
		for d := range ufile.ReadFiles(t.Context(), names, ufile.ReadFilesOptions{Files: 64, Memory: 100 << 10}) {
			sameAsOS(t, d.Name, d.Data, d.Err)
			if now := len(ringtest.Descriptors(t, "")); now > before+64+8 { // and rings
				t.Fatalf("%d descriptors, %d before", now, before)
			}
			runtime.Gosched()
			if n++; n == 50*i {
				break
			}
		}
	}
	cause := errors.New("enough")
	for i := range ringtest.Rounds(20, 8) {
		ctx, cancel := context.WithCancelCause(t.Context())
		n := 0
		for d := range ufile.ReadFiles(ctx, names, ufile.ReadFilesOptions{}) {
			if n++; n > 20*i {
				cancel(cause)
			}
			if d.Err != nil && !errors.Is(d.Err, cause) {
				t.Error(d.Err)
			}
		}
		cancel(nil)
		if n != len(names) {
			t.Errorf("%d files of %d", n, len(names))
		}
	}
	func() { // a panic of the loop
		defer func() { _ = recover() }()
		for range ufile.ReadFiles(t.Context(), names, ufile.ReadFilesOptions{Memory: 1}) {
			panic("of the loop")
		}
	}()
}

// TestReadFilesFewDescriptors: files that cannot be opened have the error of os.ReadFile.
func TestReadFilesFewDescriptors(t *testing.T) {
	names := smallFiles(t, 200)
	withoutDescriptors(t, func() {
		n := 0
		for d := range ufile.ReadFiles(t.Context(), names, ufile.ReadFilesOptions{}) {
			if n++; !errors.Is(d.Err, syscall.EMFILE) {
				t.Errorf("%s: %v", d.Name, d.Err)
			}
		}
		if n != len(names) {
			t.Errorf("%d files of %d", n, len(names))
		}
	})
}

// pipeAmong makes a named pipe and puts it among other names.
func pipeAmong(t *testing.T) (pipe string, names []string) {
	t.Helper()
	names = smallFiles(t, 150)
	needNoWait(t, names[0])
	pipe = filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	names[70] = pipe
	return pipe, names
}

// TestReadFilesPipe reads a named pipe among cached files: the other files do not wait for it, its
// writer gets no error, and its content is whole.
func TestReadFilesPipe(t *testing.T) {
	needFilesRing(t)
	pipe, names := pipeAmong(t)
	for _, size := range []int{0, 5, 64 << 10, 200 << 10} {
		content := random(size)
		others, wrote := make(chan bool), make(chan error, 1)
		go func() {
			<-others
			w, err := os.OpenFile(pipe, os.O_WRONLY, 0)
			if err != nil {
				wrote <- err
				return
			}
			for p := content; len(p) > 0 && err == nil; {
				n := min(len(p), 3000)
				_, err = w.Write(p[:n])
				p = p[n:]
			}
			wrote <- errors.Join(err, w.Close())
		}()
		n := 0
		for d := range ufile.ReadFiles(t.Context(), names, ufile.ReadFilesOptions{}) {
			if n++; n == len(names)-1 {
				close(others)
			}
			if d.Name != pipe {
				sameAsOS(t, d.Name, d.Data, d.Err)
			} else if d.Err != nil || !bytes.Equal(d.Data, content) {
				t.Errorf("%d bytes of the pipe, %v, want %d", len(d.Data), d.Err, size)
			}
		}
		if t.Failed() { // the writer may wait for a reader
			r, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
		}
		if err := <-wrote; n != len(names) || err != nil {
			t.Errorf("%d names of %d; the writer: %v", n, len(names), err)
		}
	}
}

// TestReadFilesPipeEnds ends loops that wait for the writer of a named pipe.
func TestReadFilesPipeEnds(t *testing.T) {
	needFilesRing(t)
	pipe, names := pipeAmong(t)
	late := time.AfterFunc(ringtest.Patience, func() {
		t.Error("the loop does not end")
		if w, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil { // ends open(2)
			w.Close()
		}
	})
	defer late.Stop()
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	n := 0
	for d := range ufile.ReadFiles(ctx, names, ufile.ReadFilesOptions{}) {
		if n++; n == len(names)-1 {
			cancel(cause)
		}
		if d.Name == pipe && (n != len(names) || !errors.Is(d.Err, cause)) {
			t.Errorf("the pipe as number %d: %v", n, d.Err)
		}
	}
	n = 0
	for range ufile.ReadFiles(t.Context(), names, ufile.ReadFilesOptions{}) {
		if n++; n == len(names)-1 {
			break
		}
	}
}

// TestReadFilesThatChange changes files between two submissions: the loop gets the new content.
func TestReadFilesThatChange(t *testing.T) {
	needFilesRing(t)
	if !sys.Faulty {
		t.Skip("needs a build with the race detector, which has the system-call hook")
	}
	needNoWait(t, smallFiles(t, 1)[0])
	for what, change := range map[string]struct {
		before uint8 // the opcode
		do     func(name string) error
	}{
		"grows": {abi.IORING_OP_READ, func(name string) error {
			f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.Write(random(3000))
			return errors.Join(err, f.Close())
		}},
		"is truncated": {abi.IORING_OP_READ, func(name string) error { return os.Truncate(name, 100) }},
		"is emptied":   {abi.IORING_OP_READ, func(name string) error { return os.Truncate(name, 0) }},
		"is removed":   {abi.IORING_OP_OPENAT2, os.Remove},
	} {
		names, changed := smallFiles(t, 100), 0
		sys.SetFaults(&sys.Faults{
			Call: func(_ string, n int) (int, syscall.Errno) { return n, 0 },
			Enter: func(entries []*abi.SQE) (int, syscall.Errno) {
				if len(entries) > 0 && entries[0].Opcode == change.before && changed == 0 && (what != "grows" || entries[0].Off > 0) {
					changed++
					for _, name := range names[:20] {
						if err := change.do(name); err != nil {
							t.Error(err)
						}
					}
				}
				return len(entries), 0
			},
		})
		readAll(t, newSystem(t, ufile.Options{}), names, ufile.ReadFilesOptions{Files: 32})
		sys.SetFaults(nil)
		if changed == 0 {
			t.Errorf("%s: no submission", what)
		}
	}
}

// TestReadFilesRefused makes the kernel refuse rings, submissions and operations.
func TestReadFilesRefused(t *testing.T) {
	needFilesRing(t)
	if !sys.Faulty {
		t.Skip("needs a build with the race detector, which has the system-call hook")
	}
	names := append(smallFiles(t, 100), manyFiles(t, 14)...)
	unknown := func(op uint8, flags uring.RWFlags) func(int, []*abi.SQE) (int, syscall.Errno) {
		return func(_ int, entries []*abi.SQE) (int, syscall.Errno) {
			for _, e := range entries {
				if e.Opcode == op && e.OpFlags&uint32(flags) == uint32(flags) {
					e.Opcode = 255
				}
			}
			return len(entries), 0
		}
	}
	tests := map[string]func(int, []*abi.SQE) (int, syscall.Errno){
		"rings":            nil,
		"opcode of open":   unknown(abi.IORING_OP_OPENAT2, 0),
		"read, RWF_NOWAIT": unknown(abi.IORING_OP_READ, uring.RWNoWait),
		"a part of each":   func(_ int, entries []*abi.SQE) (int, syscall.Errno) { return min(len(entries), 5), 0 },
	}
	// The first read of each file gets a part, the second one an error.
	tests["short reads"] = func(_ int, entries []*abi.SQE) (int, syscall.Errno) {
		for _, e := range entries {
			switch {
			case e.Opcode != abi.IORING_OP_READ || e.OpFlags&uint32(uring.RWNoWait) == 0:
			case e.Off == 0:
				e.Len = min(e.Len, 100)
			default:
				e.Opcode = 255
			}
		}
		return len(entries), 0
	}
	for call := range 12 {
		tests[fmt.Sprintf("submissions from number %d on", call)] = func(i int, entries []*abi.SQE) (int, syscall.Errno) {
			if i >= call {
				return 0, syscall.EPERM
			}
			return len(entries), 0
		}
	}
	for what, enter := range tests {
		t.Run(what, func(t *testing.T) {
			var calls atomic.Int64
			sys.SetFaults(&sys.Faults{
				Call: func(name string, n int) (int, syscall.Errno) {
					if what == "rings" && name == "io_uring_setup" {
						return 0, syscall.EPERM
					}
					return n, 0
				},
				Enter: func(entries []*abi.SQE) (int, syscall.Errno) {
					if enter == nil || len(entries) == 0 {
						return len(entries), 0
					}
					return enter(int(calls.Add(1)-1), entries)
				},
			})
			defer sys.SetFaults(nil)
			before := len(ringtest.Descriptors(t, ""))
			readAll(t, newSystem(t, ufile.Options{}), names, ufile.ReadFilesOptions{})
			if now := len(ringtest.Descriptors(t, "")); now > before { // rings of earlier tests may close
				t.Errorf("%d descriptors, %d before", now, before)
			}
		})
	}
}

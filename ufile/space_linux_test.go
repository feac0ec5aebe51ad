// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/ringtest"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/ufile"
)

// blocks are the bytes that a file takes.
func blocks(t testing.TB, f *ufile.File) int64 {
	t.Helper()
	st, err := f.Statx(ufile.StatxBlocks, 0)
	if err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// needFallocate skips where the file system lacks a mode.
func needFallocate(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skipf("needs a file system that can: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func size(t testing.TB, f *ufile.File) int64 {
	t.Helper()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func TestFallocate(t *testing.T) {
	const block = 64 << 10
	content := random(4 * block)
	fresh := func(t *testing.T) *ufile.File {
		f := open(t, newSystem(t, ufile.Options{}), fileOf(t, content), os.O_RDWR)
		if err := f.Sync(); err != nil { // what is not yet on the disk has no blocks
			t.Fatal(err)
		}
		return f
	}
	holds := func(t *testing.T, f *ufile.File, want []byte) {
		t.Helper()
		got := make([]byte, len(want))
		readAt(t, f, got, 0)
		if !bytes.Equal(got, want) || size(t, f) != int64(len(want)) {
			t.Errorf("%d bytes, or others than they should be", size(t, f))
		}
	}
	t.Run("Allocate", func(t *testing.T) {
		f := fresh(t)
		needFallocate(t, f.Allocate(2*block, 6*block))
		holds(t, f, append(bytes.Clone(content), make([]byte, 4*block)...))
		if n := blocks(t, f); n < 8*block {
			t.Errorf("%d bytes reserved", n)
		}
	})
	t.Run("Reserve", func(t *testing.T) {
		f := fresh(t)
		needFallocate(t, f.Reserve(0, 8*block))
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		holds(t, f, content)
		if n := blocks(t, f); n < 8*block {
			t.Errorf("%d bytes reserved", n)
		}
	})
	t.Run("PunchHole", func(t *testing.T) {
		f := fresh(t)
		before := blocks(t, f)
		needFallocate(t, f.PunchHole(block, 2*block))
		want := bytes.Clone(content)
		clear(want[block : 3*block])
		holds(t, f, want)
		if after := blocks(t, f); after >= before {
			t.Errorf("%d bytes, %d before", after, before)
		}
	})
	t.Run("ZeroRange", func(t *testing.T) {
		f := fresh(t)
		needFallocate(t, f.ZeroRange(3*block, 2*block))
		want := append(bytes.Clone(content), make([]byte, block)...)
		clear(want[3*block:])
		holds(t, f, want)
	})
	t.Run("Collapse", func(t *testing.T) {
		f := fresh(t)
		needFallocate(t, f.Fallocate(ufile.FallocateCollapse, block, block))
		holds(t, f, append(bytes.Clone(content[:block]), content[2*block:]...))
	})
	t.Run("Insert", func(t *testing.T) {
		f := fresh(t)
		needFallocate(t, f.Fallocate(ufile.FallocateInsert, block, block))
		want := append(bytes.Clone(content[:block]), make([]byte, block)...)
		holds(t, f, append(want, content[block:]...))
	})
	t.Run("WriteZeroes", func(t *testing.T) {
		ringtest.NeedKernel(t, "FALLOC_FL_WRITE_ZEROES", "6.17")
		f := fresh(t)
		needFallocate(t, f.Fallocate(ufile.FallocateWriteZeroes, block, block))
		want := bytes.Clone(content)
		clear(want[block : 2*block])
		holds(t, f, want)
	})
}

func TestFallocateErrors(t *testing.T) {
	path := fileOf(t, random(100))
	s := newSystem(t, ufile.Options{})
	r := open(t, s, path, os.O_RDONLY)
	w := open(t, s, path, os.O_RDWR)
	closed := open(t, s, path, os.O_RDWR)
	closed.Close()
	for want, err := range map[error]error{
		syscall.EBADF:  r.Allocate(0, 10),
		syscall.EINVAL: w.Allocate(-1, 10),
		os.ErrClosed:   closed.PunchHole(0, 10),
	} {
		if e, ok := err.(*fs.PathError); !ok || e.Op != "fallocate" || e.Path != path || !errors.Is(err, want) {
			t.Errorf("%v instead of %v", err, want)
		}
	}
	if err := w.Fallocate(ufile.FallocatePunchHole, 0, 10); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a hole without FallocateKeepSize: %v", err)
	}
	pipe, other, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	p, err := s.NewFile(other)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Allocate(0, 10); !errors.Is(err, syscall.ESPIPE) {
		t.Errorf("of a pipe: %v", err)
	}
	if err := p.Advise(0, 10, ufile.AdviceRandom); !errors.Is(err, syscall.ESPIPE) {
		t.Errorf("advice about a pipe: %v", err)
	}
}

// TestAdvise looks whether the page cache follows.
func TestAdvise(t *testing.T) {
	f := open(t, newSystem(t, ufile.Options{}), fileOf(t, random(1<<20)), os.O_RDWR)
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	for _, a := range []ufile.Advice{ufile.AdviceNormal, ufile.AdviceRandom, ufile.AdviceSequential, ufile.AdviceWillNeed, ufile.AdviceNoReuse} {
		if err := f.Advise(0, 0, a); err != nil {
			t.Errorf("%v: %v", a, err)
		}
	}
	err := f.Advise(0, 0, 99)
	if e, ok := err.(*fs.PathError); !ok || e.Op != "fadvise" || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("advice that is none: %v", err)
	}
	if ufile.AdviceDontNeed.String() != "dontneed" || ufile.Advice(-1).String() != "Advice(-1)" {
		t.Error("other names")
	}
	needNoWait(t, f.Name())
	p := make([]byte, 4096)
	readAt(t, f, p, 0)
	if n, errno := sys.PreadNoWait(int(f.Fd()), p, 0); n != len(p) {
		t.Skipf("needs a page cache that keeps what was just read: %v", errno)
	}
	if inMemory(t, f.Name()) {
		return
	}
	// What is being read ahead stays, and the question may start that.
	for deadline := time.Now().Add(ringtest.Patience); ; runtime.Gosched() {
		if err := f.Advise(0, 0, ufile.AdviceDontNeed); err != nil {
			t.Fatal(err)
		}
		n, errno := sys.PreadNoWait(int(f.Fd()), p, 0)
		if errno != 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes are cached still", n)
		}
	}
}

// inMemory says whether a file is in a file system whose page cache is all there
// is.
func inMemory(t testing.TB, path string) bool {
	t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(path, &st); err != nil {
		t.Fatal(err)
	}
	const tmpfs, ramfs = 0x01021994, 0x858458f6
	return int64(st.Type) == tmpfs || uint32(st.Type) == ramfs
}

// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bytes"
	"context"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/faultsweep"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/ufile"
)

// copyCase is a source and a destination, which are opened anew for each copy.
type copyCase struct {
	name string
	src  func(t *testing.T, dir string) *os.File
	dst  func(t *testing.T, dir string) *os.File
}

func openAt(t *testing.T, name string, flag int) *os.File {
	t.Helper()
	f, err := os.OpenFile(name, flag, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// appendsLater is the case of a destination that gets O_APPEND after it has become a File.
const appendsLater = "O_APPEND set later"

func copyCases() []copyCase {
	data := make([]byte, 3<<20) // no two blocks are alike
	_, _ = rand.NewChaCha8([32]byte{}).Read(data)
	whole := func(t *testing.T, dir string) *os.File {
		name := filepath.Join(dir, "src")
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return openAt(t, name, os.O_RDWR)
	}
	holed := func(t *testing.T, dir string) *os.File {
		f := openAt(t, filepath.Join(dir, "src"), os.O_RDWR|os.O_CREATE|os.O_TRUNC)
		for i := range int64(2) {
			if _, err := f.WriteAt(data[:70_000], i<<19); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Truncate(3 << 19); err != nil {
			t.Fatal(err)
		}
		return f
	}
	empty := func(t *testing.T, dir string) *os.File {
		return openAt(t, filepath.Join(dir, "dst"), os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	}
	return []copyCase{
		{"file", whole, empty},
		{"holes", holed, empty},
		{"holes over data", holed, func(t *testing.T, dir string) *os.File {
			f := empty(t, dir)
			if _, err := f.WriteAt(bytes.Repeat([]byte("x"), 1<<20), 0); err != nil {
				t.Fatal(err)
			}
			return f
		}},
		{appendsLater, whole, empty},
		{"no right to write", holed, func(t *testing.T, dir string) *os.File {
			empty(t, dir)
			return openAt(t, filepath.Join(dir, "dst"), os.O_RDONLY)
		}},
		{"from sysfs", func(t *testing.T, _ string) *os.File {
			return openAt(t, "/sys/kernel/mm/transparent_hugepage/enabled", os.O_RDONLY)
		}, empty},
		{"from a pipe", func(t *testing.T, _ string) *os.File {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				_, _ = w.Write(data)
				w.Close()
			}()
			t.Cleanup(func() { r.Close() })
			return r
		}, empty},
	}
}

// copyOutcome is what can be seen of a copy.
type copyOutcome struct {
	n         int64
	ok, isEOF bool
	content   string
}

func outcome(t *testing.T, dir string, n int64, err error) copyOutcome {
	t.Helper()
	got, rerr := os.ReadFile(filepath.Join(dir, "dst"))
	if rerr != nil {
		t.Fatal(rerr)
	}
	return copyOutcome{n, err == nil, err == io.EOF, string(got)}
}

// TestCopyWithCallsRefused copies by os and by Copy, ReadFrom and WriteTo, while each
// system call is refused as sandboxes and old kernels do. The results are those of os.
func TestCopyWithCallsRefused(t *testing.T) {
	faultsweep.Need(t)
	dirs := []string{t.TempDir()}
	if tmpfs, err := os.MkdirTemp("/dev/shm", "copy"); err == nil {
		t.Cleanup(func() { os.RemoveAll(tmpfs) })
		dirs = append(dirs, tmpfs)
	}
	for n, c := range copyCases() {
		for i, dir := range dirs {
			if !ringtest.Long() && n%len(dirs) != i {
				continue // each case on one of the file systems
			}
			t.Run(c.name+" "+strconv.Itoa(i), func(t *testing.T) { copyRefused(t, c, dir) })
		}
	}
}

func copyRefused(t *testing.T, c copyCase, dir string) {
	if c.name == "from sysfs" {
		if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage/enabled"); err != nil {
			t.Skip("needs transparent huge pages")
		}
	}
	n, err := io.Copy(struct{ io.Writer }{c.dst(t, dir)}, struct{ io.Reader }{c.src(t, dir)})
	want := outcome(t, dir, n, err)
	ways := map[string]func(dst, src *ufile.File) (int64, error){
		"Copy": func(dst, src *ufile.File) (int64, error) {
			return ufile.Copy(context.Background(), dst, src, ufile.CopyOptions{})
		},
		"ReadFrom": func(dst, src *ufile.File) (int64, error) { return dst.ReadFrom(struct{ io.Reader }{src}) },
		"WriteTo":  func(dst, src *ufile.File) (int64, error) { return src.WriteTo(struct{ io.Writer }{dst}) },
	}
	for way, do := range ways {
		var mu sync.Mutex
		calls := map[string]bool{}
		try := func(refused string, errno syscall.Errno) {
			dst, src := mustNewFile(t, c.dst(t, dir)), mustNewFile(t, c.src(t, dir))
			if c.name == appendsLater {
				if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, dst.Fd(), syscall.F_SETFL, syscall.O_APPEND); errno != 0 {
					t.Fatal(errno)
				}
			}
			sys.SetFaults(&sys.Faults{
				Enter: func(entries []*abi.SQE) (int, syscall.Errno) { return len(entries), 0 },
				Call: func(name string, n int) (int, syscall.Errno) {
					mu.Lock()
					calls[name] = true
					mu.Unlock()
					if name == refused {
						return 0, errno
					}
					return n, 0
				},
			})
			n, err := do(dst, src)
			sys.SetFaults(nil)
			if got := outcome(t, dir, n, err); got != want {
				t.Errorf("%s, %s refused by %v: %d bytes, %v; content is right: %v; os copies %d bytes, without an error: %v",
					way, refused, errno, n, err, got.content == want.content, want.n, want.ok)
			}
		}
		try("", 0)
		for _, name := range slices.Sorted(maps.Keys(calls)) {
			if name == "pread" || name == "pwrite" || name == "close" {
				continue // os needs them, too
			}
			for _, errno := range []syscall.Errno{syscall.EPERM, syscall.ENOSYS, syscall.EINVAL} {
				try(name, errno)
			}
		}
	}
}

func mustNewFile(t *testing.T, f *os.File) *ufile.File {
	t.Helper()
	u, err := ufile.NewFile(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	return u
}

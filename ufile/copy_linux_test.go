// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/ufile"
)

// blocksOf returns how many bytes of space a file uses.
func blocksOf(t *testing.T, path string) int64 {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Sys().(*syscall.Stat_t).Blocks * 512
}

// TestCopyKeepsHoles copies a file that consists mostly of holes, at its end too, to a new
// file and over an old one.
func TestCopyKeepsHoles(t *testing.T) {
	size := int64(ringtest.Rounds(16<<20, 4<<20))
	unit := size / 16
	path := filepath.Join(t.TempDir(), "sparse")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, off := range []int64{unit, 7*unit + 5000, 12 * unit} {
		if _, err := f.WriteAt(noise(100_000, uint64(off)), off); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	if blocksOf(t, path) > size/8 {
		t.Skipf("needs sparse files, which the file system of %s does not have", path)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	full := bytes.Repeat([]byte("0123456"), int(size)/7+1000)
	overModes(t, func(t *testing.T, s *ufile.System) {
		for _, direct := range []int{0, sys.ODirect} {
			if direct != 0 {
				needDirect(t, path)
			}
			src := open(t, s, path, os.O_RDONLY|direct)
			for name, old := range map[string][]byte{"new": nil, "old": full[:10*unit], "longer": full} {
				dst := open(t, s, fileOf(t, old), os.O_RDWR|direct)
				var last int64
				n, err := ufile.CopyRange(t.Context(), dst, 0, src, 0, size, ufile.CopyOptions{Progress: func(n int64) { last = n }})
				if n != size || err != nil || last != size {
					t.Fatalf("%s: %d, %v, progress %d", name, n, err, last)
				}
				got, rest := contentOf(t, dst), []byte(nil)
				if len(old) > int(size) {
					rest = old[size:]
				}
				if !bytes.Equal(got, append(bytes.Clone(want), rest...)) {
					t.Fatalf("%s: the copy has other data: %d bytes", name, len(got))
				}
				if space := blocksOf(t, dst.Name()); space > size/8 {
					t.Errorf("%s: the copy uses %d bytes of space", name, space)
				}
				// Ranges that begin and end within holes.
				if n, err := ufile.CopyRange(t.Context(), dst, 7, src, 6*unit+1, 3*unit, ufile.CopyOptions{}); n != 3*unit || err != nil {
					t.Fatalf("%s: %d, %v", name, n, err)
				}
				if got := contentOf(t, dst)[7 : 7+3*unit]; !bytes.Equal(got, want[6*unit+1:9*unit+1]) {
					t.Errorf("%s: the copy has other data", name)
				}
			}
		}
	})
}

// TestCopyOfFilesWithoutASize copies a file of /proc, whose size is reported as
// 0.
func TestCopyOfFilesWithoutASize(t *testing.T) {
	const path = "/proc/version"
	want, err := os.ReadFile(path)
	if err != nil {
		t.Skipf("needs /proc: %v", err)
	}
	overModes(t, func(t *testing.T, s *ufile.System) {
		for name, do := range map[string]func(dst, src *ufile.File) (int64, error){
			"Copy":    func(dst, src *ufile.File) (int64, error) { return ufile.Copy(t.Context(), dst, src, small) },
			"io.Copy": func(dst, src *ufile.File) (int64, error) { return io.Copy(dst, src) },
		} {
			dst := open(t, s, fileOf(t, nil), os.O_RDWR)
			if n, err := do(dst, open(t, s, path, os.O_RDONLY)); n != int64(len(want)) || err != nil || !bytes.Equal(contentOf(t, dst), want) {
				t.Errorf("%s: %d, %v", name, n, err)
			}
		}
	})
}

// TestCopyThroughPipes copies a file into a pipe and the pipe into a file.
func TestCopyThroughPipes(t *testing.T) {
	content := random(3<<20 + 1)
	overModes(t, func(t *testing.T, s *ufile.System) {
		for name, blocking := range map[string]bool{"parked": false, "blocking": true} {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			if blocking {
				r.Fd() // Fd makes the pipe blocking
				w.Fd()
			}
			from, err := s.NewFile(r)
			if err != nil {
				t.Fatal(err)
			}
			src, dst := open(t, s, fileOf(t, content), os.O_RDONLY), open(t, s, fileOf(t, []byte("old")), os.O_RDWR)
			sent := make(chan error, 1)
			go func() {
				n, err := ufile.Copy(t.Context(), w, src, ufile.CopyOptions{})
				if n != int64(len(content)) && err == nil {
					err = io.ErrUnexpectedEOF
				}
				sent <- errors.Join(err, w.Close())
			}()
			if _, err := dst.Seek(3, io.SeekStart); err != nil {
				t.Fatal(err)
			}
			n, err := ufile.Copy(t.Context(), dst, from, ufile.CopyOptions{})
			if n != int64(len(content)) || err != nil {
				t.Errorf("%s: %d, %v", name, n, err)
			}
			if err := <-sent; err != nil {
				t.Errorf("%s: into the pipe: %v", name, err)
			}
			if !bytes.Equal(contentOf(t, dst), append([]byte("old"), content...)) {
				t.Errorf("%s: the copy has other data", name)
			}
			for f, want := range map[*ufile.File]int64{src: n, dst: n + 3} {
				if pos, err := f.Seek(0, io.SeekCurrent); pos != want || err != nil {
					t.Errorf("%s: the position is %d, %v, want %d", name, pos, err, want)
				}
			}
			if err := from.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestCopyFromPipeToAppend copies where splice refuses, and from pipe to pipe.
func TestCopyFromPipeToAppend(t *testing.T) {
	s := newSystem(t, ufile.Options{})
	dst := open(t, s, fileOf(t, []byte("old")), os.O_RDWR|os.O_APPEND)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r2, w2, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer r2.Close()
	if _, err := w.WriteString("new"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if n, err := ufile.Copy(t.Context(), w2, r, ufile.CopyOptions{}); n != 3 || err != nil {
		t.Errorf("pipe to pipe: %d, %v", n, err)
	}
	w2.Close()
	if n, err := ufile.Copy(t.Context(), dst, r2, ufile.CopyOptions{}); n != 3 || err != nil {
		t.Errorf("pipe to append: %d, %v", n, err)
	}
	if got := contentOf(t, dst); string(got) != "oldnew" {
		t.Errorf("%q", got)
	}
}

// TestCopyWaitsNoLongerThanThePipe copies from a pipe that no writer fills and that has a
// deadline or is closed.
func TestCopyWaitsNoLongerThanThePipe(t *testing.T) {
	for _, end := range []error{os.ErrDeadlineExceeded, os.ErrClosed} {
		for _, ours := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v,ours=%v", end, ours), func(t *testing.T) { copyFromASilentPipe(t, end, ours) })
		}
	}
}

// copyFromASilentPipe copies from a File or an os.File. When the content of the pipe has
// been copied, it calls end on it.
func copyFromASilentPipe(t *testing.T, end error, ours bool) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer r.Close()
	if _, err := w.WriteString("some"); err != nil {
		t.Fatal(err)
	}
	var src interface {
		ufile.Endpoint
		SetReadDeadline(time.Time) error
		Close() error
	} = r
	if ours {
		if src, err = ufile.NewFile(r); err != nil {
			t.Fatal(err)
		}
		defer src.Close()
	}
	dst := open(t, newSystem(t, ufile.Options{}), fileOf(t, nil), os.O_RDWR)
	o := ufile.CopyOptions{Progress: func(int64) {
		if end == os.ErrClosed {
			go src.Close()
		} else if err := src.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
			t.Error(err)
		}
	}}
	if n, err := ufile.Copy(t.Context(), dst, src, o); n != 4 || !errors.Is(err, end) {
		t.Errorf("%d, %v", n, err)
	}
	if got := contentOf(t, dst); string(got) != "some" {
		t.Errorf("%q", got)
	}
}

// TestCopyBetweenFileSystems copies where copy_file_range refuses.
func TestCopyBetweenFileSystems(t *testing.T) {
	content := random(2 << 20)
	dir, err := os.MkdirTemp("/dev/shm", "ufile")
	if err != nil {
		t.Skipf("needs a file system in /dev/shm: %v", err)
	}
	defer os.RemoveAll(dir)
	s := newSystem(t, ufile.Options{})
	src := open(t, s, fileOf(t, content), os.O_RDONLY)
	dst := open(t, s, filepath.Join(dir, "dst"), os.O_RDWR|os.O_CREATE)
	if n, err := ufile.Copy(t.Context(), dst, src, ufile.CopyOptions{}); n != 2<<20 || err != nil || !bytes.Equal(contentOf(t, dst), content) {
		t.Errorf("%d, %v", n, err)
	}
}

// TestCopyAfterPanic lets Progress panic, or end the goroutine, on the caller's goroutine,
// while another goroutine copies. When the copy has ended, none of its goroutines uses the
// files.
func TestCopyAfterPanic(t *testing.T) {
	if !sys.Faulty {
		t.Skip("needs a build with the race detector, which has the system-call hook")
	}
	for name, end := range map[string]func(){"panic": func() { panic("enough") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) { copyAfterPanic(t, end) })
	}
}

func copyAfterPanic(t *testing.T, end func()) {
	const size, block = 4 << 20, 4096
	s := newSystem(t, ufile.Options{Mode: ufile.ModePlain})
	src := open(t, s, fileOf(t, random(size)), os.O_RDONLY)
	dst := open(t, s, filepath.Join(t.TempDir(), "dst"), os.O_RDWR|os.O_CREATE)
	stacks := func(all bool) string {
		p := make([]byte, 1<<20)
		return string(p[:runtime.Stack(p, all)])
	}
	onCaller := func() bool { return strings.Contains(stacks(false), "ufile.CopyRange(") }
	var once sync.Once
	working := make(chan struct{}) // another goroutine copies
	sys.SetFaults(&sys.Faults{
		Enter: func(entries []*abi.SQE) (int, syscall.Errno) { return len(entries), 0 },
		Call: func(name string, n int) (int, syscall.Errno) {
			switch {
			case name == "copy_file_range":
				return 0, syscall.EXDEV
			case name != "pwrite":
			case onCaller():
				<-working
			default:
				once.Do(func() { close(working) })
			}
			return n, 0
		},
	})
	defer sys.SetFaults(nil)
	left := make(chan string, 1)
	go func() {
		defer func() { left <- stacks(true) }()
		defer func() { _ = recover() }()
		_, _ = ufile.CopyRange(t.Context(), dst, 0, src, 0, size, ufile.CopyOptions{
			BlockSize: block, Blocks: 4,
			Progress: func(int64) {
				if onCaller() {
					end()
				}
			},
		})
		t.Error("CopyRange returned")
	}()
	if all := <-left; strings.Contains(all, "pump.func1()") {
		t.Errorf("the copy has ended, and a goroutine still works:\n%s", all)
	}
}

// TestCopyFromWriteOnly copies from a file with holes that may not be read: nothing is
// copied.
func TestCopyFromWriteOnly(t *testing.T) {
	overModes(t, func(t *testing.T, s *ufile.System) {
		path := fileOf(t, nil)
		if err := os.Truncate(path, 1<<20); err != nil {
			t.Fatal(err)
		}
		content := random(1 << 20)
		dst := open(t, s, fileOf(t, content), os.O_RDWR)
		src := open(t, s, path, os.O_WRONLY)
		n, err := ufile.CopyRange(t.Context(), dst, 0, src, 0, 1<<20, ufile.CopyOptions{})
		if n != 0 || !errors.Is(err, syscall.EBADF) {
			t.Errorf("%d, %v", n, err)
		}
		if !bytes.Equal(contentOf(t, dst), content) {
			t.Error("the destination has changed")
		}
	})
}

// TestCloseWhileCopyWaits closes the file of a copy that waits for a pipe in blocking mode.
func TestCloseWhileCopyWaits(t *testing.T) {
	if !sys.Faulty {
		t.Skip("needs a build with the race detector, which has the system-call hook")
	}
	for _, write := range []bool{false, true} {
		t.Run(fmt.Sprintf("write=%v", write), func(t *testing.T) { closeWhileCopyWaits(t, write) })
	}
}

func closeWhileCopyWaits(t *testing.T, write bool) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	file := open(t, newSystem(t, ufile.Options{}), fileOf(t, random(4<<20)), os.O_RDWR)
	dst, src, other := ufile.Endpoint(file), ufile.Endpoint(r), w
	if write {
		dst, src, other = w, file, r
	}
	for _, f := range []*os.File{r, w} {
		if err := syscall.SetNonblock(int(f.Fd()), false); err != nil {
			t.Fatal(err)
		}
	}
	waits := make(chan struct{})
	var once sync.Once
	sys.SetFaults(&sys.Faults{
		Enter: func(entries []*abi.SQE) (int, syscall.Errno) { return len(entries), 0 },
		Call: func(name string, n int) (int, syscall.Errno) {
			if name == "poll" {
				once.Do(func() { close(waits) })
			}
			return n, 0
		},
	})
	defer sys.SetFaults(nil)
	copied := make(chan error, 1)
	go func() {
		_, err := ufile.Copy(t.Context(), dst, src, ufile.CopyOptions{})
		copied <- err
	}()
	select {
	case <-waits:
	case <-time.After(ringtest.Patience):
		t.Error("the copy does not wait outside of splice(2)")
	}
	closed := make(chan error, 1)
	go func() { closed <- file.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(ringtest.Patience):
		t.Error("Close waits for the pipe")
	}
	if write {
		go io.Copy(io.Discard, other)
	} else if _, err := other.WriteString("more"); err != nil {
		t.Error(err)
	}
	if err := <-copied; !errors.Is(err, os.ErrClosed) {
		t.Errorf("Copy: %v, want that the file is closed", err)
	}
}

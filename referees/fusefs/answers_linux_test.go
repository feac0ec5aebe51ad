// SPDX-License-Identifier: MIT

package fusefs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/ufile"
	"github.com/ringside-io/ringside/ufile/ufiletest"
)

// answer describes the result of a call in one line: the count, the error without the file's name,
// and a hash of the bytes.
func answer(what string, p []byte, n int, err error) string {
	return fmt.Sprintf("%s: %d, %s, %s", what, n, reason(err), hash(p[:max(n, 0)]))
}

func hash(p []byte) string {
	return fmt.Sprintf("%x", sha256.Sum256(p))
}

// reason describes an error without the name of a file.
func reason(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Op + ": " + path.Err.Error()
	}
	return fmt.Sprint(err)
}

// places returns offsets and lengths of reads for a file size.
func places(size int64) [][2]int64 {
	return [][2]int64{
		{0, 1}, {0, 4096}, {5000, 10_000}, {3 * 4096, 2*131_072 + 7}, {65_000, 536}, {65_000, 4096},
		{size - 5000, 10_000}, {size - 1, 2}, {size - 4096, 4096}, {size, 10}, {size + 5000, 100},
		{0, size + 100}, {-1, 5}, {100, 0},
	}
}

// readAll does the reads of a script.
func readAll(f file, size int64) []string { return append(readsAt(f, size), reads(f, size)...) }

// readsAt reads at offsets.
func readsAt(f file, size int64) (out []string) {
	for _, at := range places(size) {
		p := make([]byte, at[1])
		n, err := f.ReadAt(p, at[0])
		out = append(out, answer(fmt.Sprintf("ReadAt %d, %d", at[0], at[1]), p, n, err))
	}
	return out
}

// reads reads at the file's position.
func reads(f file, size int64) (out []string) {
	for _, off := range []int64{0, size - 7000, size, size + 1} {
		at, err := f.Seek(off, io.SeekStart)
		out = append(out, fmt.Sprint("Seek ", at, " ", reason(err)))
		for range 3 {
			p := make([]byte, 5000)
			n, err := f.Read(p)
			out = append(out, answer("Read", p, n, err))
		}
	}
	return out
}

// writeAll does the writes of a script, and reads the result.
func writeAll(f file, size int64) (out []string) {
	for _, at := range [][2]int64{{100, 5000}, {8000, 1000}, {9000, 10}, {size - 10, 100}, {-1, 3}, {0, 0}} {
		p := bytes.Repeat([]byte{byte(at[0])}, int(at[1]))
		n, err := f.WriteAt(p, at[0])
		out = append(out, answer(fmt.Sprintf("WriteAt %d, %d", at[0], at[1]), nil, 0, err), fmt.Sprint(n))
		if at[0] >= 0 {
			n, err = f.ReadAt(p, at[0])
			out = append(out, answer("and ReadAt", p, n, err))
		}
	}
	out = append(out, "Sync: "+reason(f.Sync()))
	out = append(out, "Truncate: "+reason(f.Truncate(12_345)))
	p := make([]byte, 10_000)
	n, err := f.ReadAt(p, 8000)
	return append(out, answer("ReadAt of the rest", p, n, err))
}

// closing closes a file and then uses it.
func closing(f file) (out []string) {
	out = append(out, "Close: "+reason(f.Close()))
	p := make([]byte, 10)
	n, err := f.ReadAt(p, 0)
	out = append(out, answer("ReadAt", p, n, err))
	n, err = f.WriteAt(p, 0)
	out = append(out, answer("WriteAt", p, n, err))
	return append(out, "Close: "+reason(f.Close()))
}

// compare reports the differing answers.
func compare(t *testing.T, got, want []string) {
	t.Helper()
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Errorf("got  %s\nwant %s", got[i:min(i+1, len(got))], want[i])
		}
	}
}

// overModes runs test for each mode of ufile.
func overModes(t *testing.T, test func(t *testing.T, s *ufile.System, mode string)) {
	for _, mode := range modes[1:] {
		t.Run(mode, func(t *testing.T) {
			switch {
			case mode == "ring":
				ringtest.NeedRing(t)
			case mode == "syscall" && !ringtest.Long():
				t.Skip("makes the system calls of os.File: only with RINGSIDE_LONG=1")
			}
			s, err := system(mode)
			if err != nil {
				t.Fatal(err)
			}
			test(t, s, mode)
		})
	}
}

// TestAnswers compares every mode with os.File on files of each kind.
// Promise: ufile/file-systems-kinds
func TestAnswers(t *testing.T) {
	c := mountFUSE(t)
	changing := []string{"growing", "eintr", "eagain"} // the content of these files changes with each read, and the page cache changes the reads
	var files atomic.Int64
	script := func(s *ufile.System, cache, kind string, flag int, blocking bool) []string {
		f, err := openFile(s, c.Path(cache, kind, fmt.Sprint(files.Add(1))), flag, blocking)
		if err != nil {
			return []string{reason(err)}
		}
		out := readsAt(f, Size)
		if kind != "eagain" { // Read waits for ever for such a file, as that of os does
			out = append(out, reads(f, Size)...)
		}
		if flag == os.O_RDWR && !slices.Contains(changing, kind) {
			out = append(out, writeAll(f, Size)...)
		}
		return append(out, closing(f)...)
	}
	overModes(t, func(t *testing.T, s *ufile.System, _ string) {
		for _, cache := range []string{"direct", "cached"} {
			for _, kind := range Kinds {
				if kind == "silent" || kind == "mute" || cache == "cached" && slices.Contains(changing, kind) {
					continue
				}
				for _, flag := range []int{os.O_RDONLY, os.O_RDWR, os.O_WRONLY, os.O_RDWR | direct} {
					for _, blocking := range []bool{false, true} {
						t.Run(fmt.Sprintf("%s-%s/%#x/blocking=%v", cache, kind, flag, blocking), func(t *testing.T) {
							want := make(chan []string, 1)
							go func() { want <- script(nil, cache, kind, flag, blocking) }() // slow files wait
							compare(t, script(s, cache, kind, flag, blocking), <-want)
						})
					}
				}
			}
		}
	})
}

// TestWholeFiles reads files with Batch, Reader, Copy and Root, concurrently.
// Promise: ufile/file-systems-kinds
func TestWholeFiles(t *testing.T) {
	c := mountFUSE(t)
	want := initial()
	overModes(t, func(t *testing.T, s *ufile.System, mode string) {
		for _, cache := range []string{"direct", "cached"} {
			for _, kind := range []string{"plain", "slow", "short", "eintr"} {
				if cache == "cached" && kind != "plain" && kind != "slow" {
					continue // the page cache takes a short read for the end of the file
				}
				for _, flag := range []int{os.O_RDONLY, os.O_RDONLY | direct} {
					t.Run(fmt.Sprintf("%s-%s/%#x", cache, kind, flag), func(t *testing.T) {
						whole(t, s, c.Path(cache, kind, mode), flag, want)
					})
				}
			}
		}
	})
}

// whole reads a whole file in every way.
func whole(t *testing.T, s *ufile.System, path string, flag int, want []byte) {
	f, err := s.OpenFile(path, flag, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	same := func(how string, got []byte, err error) {
		t.Helper()
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d of %d bytes, or wrong data: %v", how, len(got), len(want), err)
		}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		got, err := io.ReadAll(ufile.NewReader(f, ufile.ReaderOptions{BlockSize: 32 << 10}))
		same("Reader", got, err)
	})
	wg.Go(func() {
		got, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<40))
		same("SectionReader", got, err)
	})
	wg.Go(func() { batch(t, s, f, want) })
	wg.Go(func() {
		root, err := s.OpenRoot(filepath.Dir(path))
		if err != nil {
			t.Error(err)
			return
		}
		defer root.Close()
		got, err := root.ReadFile(filepath.Base(path))
		same("Root.ReadFile", got, err)
	})
	wg.Go(func() {
		dst, err := os.CreateTemp(t.TempDir(), "copy")
		if err != nil {
			t.Error(err)
			return
		}
		defer dst.Close()
		n, err := ufile.CopyRange(context.Background(), dst, 0, f, 0, int64(len(want)), ufile.CopyOptions{})
		got, readErr := os.ReadFile(dst.Name())
		same(fmt.Sprintf("CopyRange of %d bytes", n), got, errors.Join(err, readErr))
	})
}

// batch reads a file with a Batch, in pieces of which the last one crosses the end.
func batch(t *testing.T, s *ufile.System, f *ufile.File, want []byte) {
	b, err := s.NewBatch(ufile.BatchOptions{})
	if err != nil {
		t.Error(err)
		return
	}
	defer b.Close()
	const size = 7000
	var ranges []ufile.Range
	for off := 0; off < len(want); off += size {
		ranges = append(ranges, ufile.Range{File: f, Off: int64(off), Buf: make([]byte, size)})
	}
	if err := b.Read(ranges); err != io.EOF {
		t.Errorf("Batch: %v, want EOF", err)
	}
	for i, r := range ranges {
		part := want[i*size : min((i+1)*size, len(want))]
		wantErr := error(nil)
		if i == len(ranges)-1 {
			wantErr = io.EOF
		}
		if r.Err != wantErr || !bytes.Equal(r.Buf[:r.N], part) {
			t.Errorf("range %d of the Batch: %d bytes, %v, or wrong data", i, r.N, r.Err)
		}
	}
}

// fileSystems are the writable file systems, with functions that mount them.
var fileSystems = []struct {
	name  string
	mount func(testing.TB) string
}{
	{"tmpfs", tmpfs},
	{"ramfs", ramfs},
	{"overlay", overlay},
	{"fuse", loopback},
	{"ext2", image("ext2", 64<<20, "mkfs.ext2", "-q", "-F")},
	{"ext3", image("ext3", 64<<20, "mkfs.ext3", "-q", "-F")},
	{"ext4", image("ext4", 64<<20, "mkfs.ext4", "-q", "-F")},
	{"xfs", image("xfs", 320<<20, "mkfs.xfs", "-q", "-f")},
	{"btrfs", image("btrfs", 128<<20, "mkfs.btrfs", "-q", "-f")},
}

// briefRings are those on which ring mode is tested before a merge: in user space and on a disk.
var briefRings = []string{"fuse", "ext4"}

// TestFileSystems runs the suite of ufile, which compares with os.File, on every file system that
// can be mounted here.
// Promise: ufile/file-systems-kinds
func TestFileSystems(t *testing.T) {
	for _, kind := range fileSystems {
		t.Run(kind.name, func(t *testing.T) {
			t.Setenv("TMPDIR", kind.mount(t))
			overModes(t, func(t *testing.T, s *ufile.System, mode string) {
				if mode == "ring" && !ringtest.Long() && !slices.Contains(briefRings, kind.name) {
					t.Skip("the other file systems answer rings as these do: only with RINGSIDE_LONG=1")
				}
				ufiletest.Run(t, func(name string, flag int, perm fs.FileMode) (ufiletest.File, error) {
					f, err := s.OpenFile(name, flag, perm)
					if err != nil {
						return nil, err
					}
					return f, nil
				})
			})
		})
	}
}

// TestReadOnlyFileSystems compares reads of read-only images and of files that the kernel
// generates.
// Promise: ufile/file-systems-kinds
func TestReadOnlyFileSystems(t *testing.T) {
	content := initial()
	image := func(kind, ext string, tool ...string) func(t *testing.T) string {
		return func(t *testing.T) string {
			from, img := t.TempDir(), filepath.Join(t.TempDir(), "image")
			if err := os.WriteFile(filepath.Join(from, "file"), content, 0o600); err != nil {
				t.Fatal(err)
			}
			args := append(tool, from, img)
			if ext == "image first" {
				args = append(tool, img, from)
			}
			run(t, args...)
			return filepath.Join(loop(t, kind, img), "file")
		}
	}
	made := func(path string) func(*testing.T) string {
		return func(t *testing.T) string {
			if _, err := os.Stat(path); err != nil {
				t.Skipf("needs %s: %v", path, err)
			}
			return path
		}
	}
	for _, kind := range []struct {
		name string
		path func(*testing.T) string
	}{
		{"squashfs", image("squashfs", "", "mksquashfs")},
		{"erofs", image("erofs", "image first", "mkfs.erofs", "-zlz4")},
		{"procfs", made("/proc/filesystems")},
		{"procfs-polled", made("/proc/self/mounts")},
		{"sysfs", made("/sys/kernel/uevent_seqnum")},
		{"sysfs-binary", made("/sys/kernel/notes")},
		{"cgroup", made("/sys/fs/cgroup/cgroup.controllers")},
	} {
		t.Run(kind.name, func(t *testing.T) {
			path := kind.path(t)
			all, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			overModes(t, func(t *testing.T, s *ufile.System, _ string) {
				for _, flag := range []int{os.O_RDONLY, os.O_RDONLY | direct} {
					for _, blocking := range []bool{false, true} {
						var got, want []string
						for _, half := range []struct {
							s   *ufile.System
							out *[]string
						}{{s, &got}, {nil, &want}} {
							f, err := openFile(half.s, path, flag, blocking)
							if err != nil {
								*half.out = []string{reason(err)}
								continue
							}
							*half.out = append(readAll(f, int64(len(all))), closing(f)...)
						}
						compare(t, got, want)
					}
				}
			})
		})
	}
}

// TestNoRingWithoutNonBlockingReads lets many goroutines read files, cached and not, that
// the kernel cannot read without blocking. These reads must not use the few worker threads
// of a ring.
// Promise: ufile/files-without-non
func TestNoRingWithoutNonBlockingReads(t *testing.T) {
	for _, kind := range fileSystems[1:4] { // ramfs, overlay, fuse
		t.Run(kind.name, func(t *testing.T) {
			path := filepath.Join(kind.mount(t), "file")
			if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := system("auto")
			if err != nil {
				t.Fatal(err)
			}
			for _, flag := range []int{os.O_RDWR, os.O_RDWR | direct} {
				f, err := s.OpenFile(path, flag, 0)
				if err != nil {
					continue // no O_DIRECT here
				}
				var wg sync.WaitGroup
				for g := range 32 {
					wg.Go(func() {
						p := ufile.AlignedBuffer(4096)
						for i := range 32 {
							if _, err := f.ReadAt(p, int64(g*32+i)%256*4096); err != nil {
								t.Error(err)
							}
							if _, err := f.WriteAt(p, int64(g*32+i)%256*4096); err != nil {
								t.Error(err)
							}
						}
					})
				}
				wg.Wait()
				f.Close()
			}
			if got := s.Stats(); got.Ring != 0 || got.Plain == 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

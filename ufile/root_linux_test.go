// SPDX-License-Identifier: MIT

package ufile_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/internal/testing/seccomp/filter"
	"github.com/ringside-io/ringside/ufile"
	"github.com/ringside-io/ringside/ufile/ufiletest"
)

// openat2 is the number of the system call on every architecture.
const openat2 = 437

// needOpenat2 skips the test where openat2 is missing or forbidden.
func needOpenat2(t testing.TB) {
	t.Helper()
	r := openRoot(t, t.TempDir())
	if name, reason := r.Backend(); name != "openat2" {
		t.Skipf("needs openat2: %s", reason)
	}
}

// openRoot opens a Root; the end of the test closes it.
func openRoot(t testing.TB, dir string) *ufile.Root {
	t.Helper()
	r, err := newSystem(t, ufile.Options{}).OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// envNoOpenat2 holds the errno with which the test binary forbids openat2 to itself.
const envNoOpenat2 = "RINGSIDE_TEST_NO_OPENAT2"

// TestRootWithoutOpenat2 runs the suite in a process in which openat2 is forbidden.
// Promise: ufile/openat2-forbidden-missing
func TestRootWithoutOpenat2(t *testing.T) {
	if os.Getenv(envNoOpenat2) != "" {
		return // this is a child
	}
	for name, errno := range map[string]syscall.Errno{"EPERM": syscall.EPERM, "ENOSYS": syscall.ENOSYS} {
		if !ringtest.Long() && errno == syscall.ENOSYS {
			continue // the whole suite again
		}
		t.Run(name, func(t *testing.T) {
			args := []string{"-test.v", "-test.short", "-test.run=^TestForbiddenOpenat2$"}
			if testing.Short() {
				args[2] += "/^Root$/^(Open|Files|Two)$"
			}
			cmd := exec.Command(os.Args[0], args...)
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", envNoOpenat2, int(errno)))
			out, err := cmd.CombinedOutput()
			switch {
			case err != nil:
				t.Errorf("%v\n%s", err, out)
			case strings.Contains(string(out), "--- SKIP: TestForbiddenOpenat2"):
				t.Skipf("needs seccomp filters: %s", out)
			case !strings.Contains(string(out), "--- PASS: TestForbiddenOpenat2/Root/Open"):
				t.Errorf("the child ran no test\n%s", out)
			}
		})
	}
}

// TestForbiddenOpenat2 is the child of TestRootWithoutOpenat2.
func TestForbiddenOpenat2(t *testing.T) {
	var errno int
	if _, err := fmt.Sscan(os.Getenv(envNoOpenat2), &errno); err != nil {
		return // this is no child
	}
	if err := filter.Forbid(syscall.Errno(errno), openat2, openat2); err != nil {
		t.Skipf("needs seccomp filters: %v", err)
	}
	s := newSystem(t, ufile.Options{})
	r := openRoot(t, t.TempDir())
	if name, reason := r.Backend(); name != "os" || !strings.Contains(reason, "openat2") {
		t.Errorf("backend %q, reason %q", name, reason)
	}
	ufiletest.RunRootPart(t, rootOpener(s), errno%8, 8)
}

// TestMagicLinks opens links to files that have no name.
// Promise: ufile/root-opens-creates
func TestMagicLinks(t *testing.T) {
	f, err := os.Open(fileOf(t, []byte("reached")))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skipf("needs /proc: %v", err)
	}
	r := openRoot(t, "/proc/self/fd")
	if got, err := r.ReadFile(fmt.Sprint(f.Fd())); err == nil {
		t.Errorf("read %q", got)
	}
}

// TestRootUnderRenames opens files while another goroutine exchanges a directory of the
// path with a link that leads outside. No file outside may be opened.
// Promise: ufile/root-opens-creates
func TestRootUnderRenames(t *testing.T) {
	needOpenat2(t)
	dir := tree(t, "root/a/b/file", "root/a/trap>../../outside", "outside/file", "outside/b/file")
	r := openRoot(t, filepath.Join(dir, "root"))
	done := make(chan struct{})
	var rest sync.WaitGroup
	rest.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := sys.RenameAt2(sys.AtCwd, filepath.Join(dir, "root/a/b"), sys.AtCwd, filepath.Join(dir, "root/a/trap"), sys.RenameExchange); err != nil {
				t.Error(err)
				return
			}
		}
	})
	var opened atomic.Int64
	var readers sync.WaitGroup
	patience := time.Now().Add(ringtest.Patience)
	for range 4 {
		readers.Go(func() {
			// The exchanger may be stopped at a moment when no open can succeed.
			for i := 0; i < 500 || opened.Load() == 0 && time.Now().Before(patience); i++ {
				got, err := r.ReadFile([]string{"a/b/file", "a/b/../b/file", "a/trap/../b/file"}[i%3])
				if err == nil {
					opened.Add(1)
					if string(got) != "root/a/b/file" {
						t.Errorf("opened %q, which is outside", got)
					}
				}
			}
		})
	}
	readers.Wait()
	close(done)
	rest.Wait()
	if opened.Load() == 0 {
		t.Error("no open succeeded")
	}
}

// TestRootUncertain opens through ".." while another goroutine renames directories, which
// makes the kernel return EAGAIN because it cannot be certain of the path.
func TestRootUncertain(t *testing.T) {
	needOpenat2(t)
	dir := tree(t, "root/a/b/c/file", "elsewhere/x")
	r := openRoot(t, filepath.Join(dir, "root"))
	done := make(chan struct{})
	var rest sync.WaitGroup
	rest.Go(func() {
		from, to := filepath.Join(dir, "elsewhere/x"), filepath.Join(dir, "elsewhere/y")
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := os.Rename(from, to); err != nil {
				t.Error(err)
				return
			}
			from, to = to, from
		}
	})
	for range ringtest.Rounds(3000, 500) {
		f, err := r.Open("a/../a/b/../../a/b/c/../c/file")
		if err != nil {
			t.Error(err)
			break
		}
		f.Close()
	}
	close(done)
	rest.Wait()
}

// TestRootCloseUnderOpen closes a Root while an open waits for a writer.
func TestRootCloseUnderOpen(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skipf("needs named pipes: %v", err)
	}
	r := openRoot(t, dir)
	opened := make(chan error)
	go func() {
		f, err := r.Open("pipe")
		closeAll(f)
		opened <- err
	}()
	// Once this open has found the reader, the reader's open has begun. It may not have
	// ended, and Close must not wait for it.
	w, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

// TestSuiteOnRootFiles runs the suite of files on files that a Root opens.
func TestSuiteOnRootFiles(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("runs the suite again: not with -short or -race")
	}
	needOpenat2(t)
	s := newSystem(t, ufile.Options{})
	ufiletest.Run(t, func(name string, flag int, perm fs.FileMode) (ufiletest.File, error) {
		dir, base := filepath.Split(name)
		if _, err := os.Stat(dir); err != nil || base == "" || !filepath.IsAbs(name) {
			f, err := s.OpenFile(name, flag, perm)
			if err != nil {
				return nil, err
			}
			return f, nil
		}
		r, err := s.OpenRoot(dir)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		f, err := r.OpenFile(base, flag, perm)
		if e, ok := err.(*fs.PathError); ok { // the errors of os.Root that differ from those of os.Open
			return nil, &fs.PathError{Op: "open", Path: name, Err: e.Err}
		}
		return f, err
	})
}

func closeAll(f *ufile.File) {
	if f != nil {
		f.Close()
	}
}

// tree creates files, directories (which end in a slash) and links ("name>target").
func tree(t testing.TB, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		name, target, link := strings.Cut(name, ">")
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		switch {
		case link:
			err = errors.Join(err, os.Symlink(target, path))
		case strings.HasSuffix(name, "/"):
			err = errors.Join(err, os.MkdirAll(path, 0o700))
		default:
			err = errors.Join(err, os.WriteFile(path, []byte(name), 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// escapes are links in the root with their targets.
var escapes = map[string]string{
	"up":     "..",
	"upup":   "a/../../outside",
	"abs":    "OUTSIDE",
	"slash":  "/",
	"cwd":    "/proc/self/cwd",
	"rootfs": "/proc/self/root",
	"fd":     "/proc/self/fd",
	"loop":   "loop",
	"chain":  "a/../up",
	"a/deep": "../../outside",
	"inner":  "a/b",
}

// TestRootEscapes opens, creates and removes hostile names that lead out of a root, while
// directories and links are exchanged: every opened file lies in the root, and files
// outside do not change.
// Promise: ufile/root-opens-creates
func TestRootEscapes(t *testing.T) {
	needOpenat2(t)
	dir, err := filepath.EvalSymlinks(tree(t, "root/a/b/c/file", "root/a/file", "outside/file", "outside/b/file", "outside/a/b/file"))
	if err != nil {
		t.Fatal(err)
	}
	root, outside := filepath.Join(dir, "root"), filepath.Join(dir, "outside")
	for link, target := range escapes {
		if err := os.Symlink(strings.Replace(target, "OUTSIDE", outside, 1), filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	r := openRoot(t, root)
	stop := exchange(t, filepath.Join(root, "a/b"), filepath.Join(root, "a/deep"))
	var opened, refused atomic.Int64
	var wg sync.WaitGroup
	for seed := range uint64(4) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 1))
			for range ringtest.Rounds(2500, 300) {
				if tryEscape(t, r, rng, root) {
					opened.Add(1)
				} else {
					refused.Add(1)
				}
			}
		})
	}
	wg.Wait()
	stop()
	for file, want := range map[string]string{"file": "outside/file", "b/file": "outside/b/file", "a/b/file": "outside/a/b/file"} {
		if got, err := os.ReadFile(filepath.Join(outside, file)); string(got) != want {
			t.Errorf("%s outside is now %q, %v", file, got, err)
		}
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 3 {
		t.Errorf("outside: %v, %v", entries, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("next to the root: %v, %v", entries, err)
	}
	if opened.Load() == 0 {
		t.Error("no open succeeded")
	}
	t.Logf("%d opened inside, %d refused, none outside", opened.Load(), refused.Load())
}

// exchange swaps two names repeatedly until it is stopped.
func exchange(t *testing.T, a, b string) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := sys.RenameAt2(sys.AtCwd, a, sys.AtCwd, b, sys.RenameExchange); err != nil {
				t.Error(err)
				return
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}

// tryEscape does one operation with a name that may lead anywhere, and reports whether the
// root allowed it.
func tryEscape(t *testing.T, r *ufile.Root, rng *rand.Rand, root string) bool {
	plain := []string{"..", "a", "a/b", "b", "c", "file", ".", "inner", "a/b/../b/c/file"}
	parts := []string{"up", "upup", "abs", "slash", "cwd", "rootfs", "fd", "loop", "chain", "deep", "", "0", "outside"}
	var words []string
	for range 1 + rng.IntN(5) {
		if rng.IntN(3) > 0 {
			words = append(words, plain[rng.IntN(len(plain))])
		} else {
			words = append(words, parts[rng.IntN(len(parts))])
		}
	}
	name := strings.Join(words, "/")
	if rng.IntN(20) == 0 {
		name = root + "/" + name
	}
	switch rng.IntN(8) {
	case 0:
		made := name + fmt.Sprintf("/made-%d", rng.IntN(3))
		return r.Mkdir(made, 0o700) == nil && r.Remove(made) == nil
	case 1:
		made := name + fmt.Sprintf("/moved-%d", rng.IntN(3))
		return r.Rename("a/file", made) == nil && r.Rename(made, "a/file") == nil
	case 2:
		_, err := r.Stat(name)
		return err == nil
	}
	flags := []int{os.O_RDONLY, os.O_RDWR, os.O_WRONLY | os.O_CREATE, os.O_RDWR | os.O_CREATE | os.O_EXCL}[rng.IntN(4)]
	if flags&os.O_CREATE != 0 {
		name += "/ringside-escaped"
	}
	f, err := r.OpenFile(name, flags, 0o600)
	if err != nil {
		return false
	}
	defer f.Close()
	conn, err := f.SyscallConn()
	if err != nil {
		t.Error(err)
		return true
	}
	_ = conn.Control(func(fd uintptr) { // the file is open
		at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		if err != nil || at != root && !strings.HasPrefix(at, root+"/") {
			t.Errorf("%q with flags %#x is %s, %v", name, flags, at, err)
		}
	})
	return true
}

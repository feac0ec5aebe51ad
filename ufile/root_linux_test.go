// SPDX-License-Identifier: MIT

package ufile_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/forbid/filter"
	"github.com/ringside-io/ringside/internal/ringtest"
	"github.com/ringside-io/ringside/ufile"
	"github.com/ringside-io/ringside/ufile/ufiletest"
)

// openat2 is the number of the system call on every architecture.
const openat2 = 437

// needOpenat2 skips where openat2 is missing or forbidden.
func needOpenat2(t testing.TB) {
	t.Helper()
	r := openRoot(t, t.TempDir(), ufile.RootOptions{})
	if name, reason := r.Backend(); name != "openat2" {
		t.Skipf("needs openat2: %s", reason)
	}
}

// openRoot opens a Root that is closed when the test ends.
func openRoot(t testing.TB, dir string, o ufile.RootOptions) *ufile.Root {
	t.Helper()
	r, err := newSystem(t, ufile.Options{}).OpenRootWith(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// envNoOpenat2 makes the test binary forbid openat2 to itself: the errno.
const envNoOpenat2 = "RINGSIDE_TEST_NO_OPENAT2"

// TestRootWithoutOpenat2 runs the suite in a process to which openat2 is
// forbidden.
func TestRootWithoutOpenat2(t *testing.T) {
	if os.Getenv(envNoOpenat2) != "" {
		return // a child
	}
	for name, errno := range map[string]syscall.Errno{"EPERM": syscall.EPERM, "ENOSYS": syscall.ENOSYS} {
		if testing.Short() && errno == syscall.ENOSYS {
			continue // the suite once more
		}
		t.Run(name, func(t *testing.T) {
			args := []string{"-test.v", "-test.short", "-test.run=^TestForbiddenOpenat2$"}
			if testing.Short() {
				args[2] += "/^(Extras|Root)$/^(Open|Files|Two)$"
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
				t.Errorf("the child ran nothing\n%s", out)
			}
		})
	}
}

// TestForbiddenOpenat2 is the child of TestRootWithoutOpenat2.
func TestForbiddenOpenat2(t *testing.T) {
	var errno int
	if _, err := fmt.Sscan(os.Getenv(envNoOpenat2), &errno); err != nil {
		return // not a child
	}
	if err := filter.Forbid(syscall.Errno(errno), openat2, openat2); err != nil {
		t.Skipf("needs seccomp filters: %v", err)
	}
	s := newSystem(t, ufile.Options{})
	r := openRoot(t, t.TempDir(), ufile.RootOptions{})
	if name, reason := r.Backend(); name != "os" || !strings.Contains(reason, "openat2") {
		t.Errorf("backend %q, reason %q", name, reason)
	}
	_, err := s.OpenRootWith(t.TempDir(), ufile.RootOptions{NoSymlinks: true})
	if _, ok := err.(*fs.PathError); !ok || !errors.Is(err, syscall.Errno(errno)) {
		t.Errorf("restrictions that cannot be had: %v", err)
	}
	t.Run("Extras", func(t *testing.T) { rootExtras(t, ufile.RootOptions{}) })
	ufiletest.RunRootPart(t, rootOpener(s), errno%8, 8)
}

// TestRootExtras makes the calls that os.Root lacks.
func TestRootExtras(t *testing.T) {
	t.Run("plain", func(t *testing.T) { rootExtras(t, ufile.RootOptions{}) })
	t.Run("strict", func(t *testing.T) {
		needOpenat2(t)
		rootExtras(t, ufile.RootOptions{NoXDev: true})
	})
}

func rootExtras(t *testing.T, o ufile.RootOptions) {
	dir := tree(t, "root/file", "root/dir/in", "root/link>file", "root/dir/up>../file", "root/dir/twice>up", "root/out>../secret",
		"root/abs>/etc", "root/loop>loop", "secret")
	r := openRoot(t, filepath.Join(dir, "root"), o)
	for name, want := range map[string]string{"file": "file", "link": "file", "dir/twice": "file", "./dir/../link": "file", "dir/in": "dir/in"} {
		st, err := r.Statx(name, ufile.StatxAll, 0)
		info, statErr := os.Stat(filepath.Join(dir, "root", want))
		if err != nil || statErr != nil || st.Ino != info.Sys().(*syscall.Stat_t).Ino {
			t.Errorf("Statx(%s) = %+v, %v", name, st, err)
		}
	}
	if st, err := r.Statx("link", ufile.StatxBasic, ufile.StatxNoFollow); err != nil || st.Mode.Type() != fs.ModeSymlink {
		t.Errorf("Statx of a link = %v, %v", st.Mode, err)
	}
	for name, want := range map[string]error{
		"missing": fs.ErrNotExist, "": nil, "../secret": nil, "out": nil, "abs": nil, "/etc": nil, "loop": syscall.ELOOP, "file/": syscall.ENOTDIR,
	} {
		_, err := r.Statx(name, ufile.StatxBasic, 0)
		e, ok := err.(*fs.PathError)
		if !ok || e.Op != "statx" || e.Path != name || want != nil && !errors.Is(err, want) {
			t.Errorf("Statx(%q) answers %v", name, err)
		}
		if want == nil && name != "" && e.Err.Error() != "path escapes from parent" {
			t.Errorf("Statx(%q) answers %v", name, err)
		}
	}
	rootRenames(t, r, filepath.Join(dir, "root"))
	rootXattrs(t, r)
}

func rootRenames(t *testing.T, r *ufile.Root, dir string) {
	for _, step := range []struct {
		do       func(a, b string) error
		from, to string
		want     error
	}{
		{r.RenameNoReplace, "file", "dir/in", fs.ErrExist},
		{r.RenameNoReplace, "missing", "new", fs.ErrNotExist},
		{r.RenameNoReplace, "file", "../new", errAny},
		{r.RenameNoReplace, "file", "new/", syscall.ENOTDIR},
		{r.RenameNoReplace, "file", "", errAny},
		{r.RenameNoReplace, "..", "new", errAny},
		{r.Exchange, "file", "missing", fs.ErrNotExist},
		{r.Exchange, "file", "../secret", errAny},
		{r.Exchange, "out/x", "file", errAny},
		{r.Exchange, "dir/", "file/", syscall.ENOTDIR},
		{r.Exchange, "file", "dir", nil},
		{r.Exchange, "dir", "file", nil},
		{r.RenameNoReplace, "dir/", "new/", nil},
		{r.RenameNoReplace, "new", "dir", nil},
	} {
		err := step.do(step.from, step.to)
		e, ok := err.(*os.LinkError)
		switch {
		case step.want == nil && err == nil, step.want == errAny && ok, step.want != nil && ok && errors.Is(err, step.want):
		default:
			t.Errorf("%s, %s: %v", step.from, step.to, err)
		}
		if ok && (e.Op != "renameat" || e.Old != step.from || e.New != step.to) {
			t.Errorf("%+v", e)
		}
	}
	for name, want := range map[string]string{"file": "root/file", "dir/in": "root/dir/in"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); string(got) != want {
			t.Errorf("%s holds %q, %v", name, got, err)
		}
	}
}

// errAny stands for some error.
var errAny = errors.New("any")

func rootXattrs(t *testing.T, r *ufile.Root) {
	err := r.Setxattr("link", "user.ringside", []byte("value"), ufile.XattrCreate)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Logf("needs extended attributes and /proc: %v", err)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.Getxattr("file", "user.ringside"); string(got) != "value" || err != nil {
		t.Errorf("Getxattr = %q, %v", got, err)
	}
	if got, err := r.Listxattr("dir/up"); !contains(got, "user.ringside") || err != nil {
		t.Errorf("Listxattr = %q, %v", got, err)
	}
	if err := r.Removexattr("file", "user.ringside"); err != nil {
		t.Error(err)
	}
	for name, call := range map[string]func(string) error{
		"getxattr":    func(name string) error { _, err := r.Getxattr(name, "user.x"); return err },
		"setxattr":    func(name string) error { return r.Setxattr(name, "user.x", nil, 0) },
		"listxattr":   func(name string) error { _, err := r.Listxattr(name); return err },
		"removexattr": func(name string) error { return r.Removexattr(name, "user.x") },
	} {
		for _, path := range []string{"out", "../secret", "missing"} {
			e, ok := call(path).(*fs.PathError)
			if !ok || e.Op != name || e.Path != path {
				t.Errorf("%s of %s: %v", name, path, e)
			}
		}
	}
}

func TestStrictRoot(t *testing.T) {
	needOpenat2(t)
	dir := tree(t, "root/file", "root/dir/in", "root/dir/deep/est", "root/link>file", "root/dirlink>dir", "root/out>../secret", "secret")
	r := openRoot(t, filepath.Join(dir, "root"), ufile.RootOptions{NoSymlinks: true})
	t.Run("links", func(t *testing.T) { strictLinks(t, r) })
	t.Run("escapes", func(t *testing.T) {
		for _, name := range []string{"..", "../secret", "/etc", "dir/../../secret", "/"} {
			strictRefuses(t, r, name, nil)
		}
		strictRefuses(t, r, "file/x", syscall.ENOTDIR)
	})
	t.Run("changes", func(t *testing.T) { strictChanges(t, r, filepath.Join(dir, "root")) })
	t.Run("sub", func(t *testing.T) {
		sub, err := r.OpenRoot("dir")
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		if _, err := sub.Stat("../file"); err == nil {
			t.Error("a Root below leads above")
		}
		if got, err := sub.ReadFile("in"); string(got) != "root/dir/in" {
			t.Errorf("%q, %v", got, err)
		}
	})
	t.Run("closed", func(t *testing.T) {
		r := openRoot(t, dir, ufile.RootOptions{NoXDev: true})
		if err := errors.Join(r.Close(), r.Close()); err != nil {
			t.Error(err)
		}
		strictRefuses(t, r, "secret", os.ErrClosed)
	})
}

// strictRefuses makes every call with a name.
func strictRefuses(t *testing.T, r *ufile.Root, name string, want error) {
	t.Helper()
	for op, call := range strictCalls(r) {
		err := call(name)
		_, path := err.(*fs.PathError)
		_, link := err.(*os.LinkError)
		if !path && !link || want != nil && !errors.Is(err, want) {
			t.Errorf("%s(%s) answers %v", op, name, err)
		}
	}
}

func strictCalls(r *ufile.Root) map[string]func(name string) error {
	return map[string]func(name string) error{
		"Open":      func(name string) error { f, err := r.Open(name); closeAll(f); return err },
		"Create":    func(name string) error { f, err := r.Create(name); closeAll(f); return err },
		"OpenRoot":  func(name string) error { _, err := r.OpenRoot(name); return err },
		"Stat":      func(name string) error { _, err := r.Stat(name); return err },
		"Lstat":     func(name string) error { _, err := r.Lstat(name + "/x"); return err },
		"Statx":     func(name string) error { _, err := r.Statx(name, ufile.StatxBasic, 0); return err },
		"Chmod":     func(name string) error { return r.Chmod(name, 0o777) },
		"Chown":     func(name string) error { uid, gid := owner(); return r.Chown(name, uid, gid) },
		"Chtimes":   func(name string) error { return r.Chtimes(name, time.Time{}, time.Now()) },
		"Mkdir":     func(name string) error { return r.Mkdir(name+"/new", 0o700) },
		"MkdirAll":  func(name string) error { return r.MkdirAll(name+"/new", 0o700) },
		"Remove":    func(name string) error { return r.Remove(name + "/in") },
		"Rename":    func(name string) error { return r.Rename("file", name+"/new") },
		"Link":      func(name string) error { return r.Link("file", name+"/new") },
		"Symlink":   func(name string) error { return r.Symlink("file", name+"/new") },
		"Readlink":  func(name string) error { _, err := r.Readlink(name + "/x"); return err },
		"ReadFile":  func(name string) error { _, err := r.ReadFile(name); return err },
		"WriteFile": func(name string) error { return r.WriteFile(name, nil, 0o600) },
		"Exchange":  func(name string) error { return r.Exchange("file", name+"/in") },
	}
}

func closeAll(f *ufile.File) {
	if f != nil {
		f.Close()
	}
}

func strictLinks(t *testing.T, r *ufile.Root) {
	strictRefuses(t, r, "dirlink", nil)
	for _, name := range []string{"link", "out", "dirlink/in"} {
		if _, err := r.Open(name); !errors.Is(err, syscall.ELOOP) {
			t.Errorf("Open(%s) answers %v", name, err)
		}
	}
	if target, err := r.Readlink("link"); target != "file" || err != nil {
		t.Errorf("Readlink = %q, %v", target, err)
	}
	if info, err := r.Lstat("out"); err != nil || info.Mode().Type() != fs.ModeSymlink {
		t.Errorf("Lstat = %v, %v", info, err)
	}
	uid, gid := owner()
	if err := r.Lchown("out", uid, gid); err != nil {
		t.Error(err)
	}
}

func strictChanges(t *testing.T, r *ufile.Root, dir string) {
	some := time.Unix(1e9, 0)
	uid, gid := owner()
	steps := []error{
		r.Mkdir("new", 0o750), r.MkdirAll("new/a/b/c/", 0o700), r.MkdirAll("new/a", 0o700),
		r.WriteFile("new/a/file", []byte("data"), 0o600), r.Chmod("new/a/file", 0o640), r.Chtimes("new/a/file", some, some),
		r.Chown("new/a/file", uid, gid), r.Link("new/a/file", "new/hard"), r.Symlink("../../..", "new/a/way out"),
		r.Rename("new/hard", "new/moved"), r.Rename("new/a/b/", "new/b/"), r.RemoveAll("missing"), r.Remove("new/b/c"), r.Remove("new/b/"),
	}
	for i, err := range steps {
		if err != nil {
			t.Errorf("step %d: %v", i, err)
		}
	}
	info, err := os.Stat(filepath.Join(dir, "new/moved"))
	if err != nil || info.Mode() != 0o640 || !info.ModTime().Equal(some) || info.Size() != 4 {
		t.Errorf("%v, %v", info, err)
	}
	for want, err := range map[error]error{
		fs.ErrExist: r.Mkdir("dir", 0o700), syscall.ENOTEMPTY: r.Remove("new"), syscall.EEXIST: r.Rename("dir", "new"),
		syscall.EINVAL: r.RemoveAll("."), syscall.ENOTDIR: r.Remove("file/"), fs.ErrNotExist: r.Remove("missing"),
	} {
		if !errors.Is(err, want) {
			t.Errorf("%v instead of %v", err, want)
		}
	}
	f, err := r.Open("new/a")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Rename(dir, dir+" moved"); err != nil {
		t.Fatal(err)
	}
	defer os.Rename(dir+" moved", dir) // the test goes on there
	entries, err := f.ReadDir(-1)
	if len(entries) != 2 || err != nil {
		t.Errorf("%v, %v", entries, err)
	}
	for _, e := range entries {
		if _, err := e.Info(); err != nil {
			t.Error(err)
		}
	}
	if err := r.RemoveAll("new"); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(dir + " moved/new"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("RemoveAll leaves something: %v", err)
	}
}

// TestNoXDev crosses from one mount into another.
func TestNoXDev(t *testing.T) {
	needOpenat2(t)
	if here, err := os.Stat("/proc"); err != nil || sameDevice(t, here, "/") {
		t.Skip("needs a file system mounted at /proc")
	}
	r := openRoot(t, "/", ufile.RootOptions{NoXDev: true})
	for op, call := range map[string]func(name string) error{
		"Open": func(name string) error { f, err := r.Open(name); closeAll(f); return err },
		"Stat": func(name string) error { _, err := r.Stat(name); return err },
	} {
		if err := call("proc/version"); !errors.Is(err, syscall.EXDEV) {
			t.Errorf("%s answers %v", op, err)
		}
		if err := call("proc/../proc"); !errors.Is(err, syscall.EXDEV) {
			t.Errorf("%s answers %v", op, err)
		}
		if err := call("../.."); err == nil || errors.Is(err, syscall.EXDEV) {
			t.Errorf("%s of what leads outside answers %v", op, err)
		}
	}
}

func sameDevice(t *testing.T, a fs.FileInfo, name string) bool {
	b, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return a.Sys().(*syscall.Stat_t).Dev == b.Sys().(*syscall.Stat_t).Dev
}

// TestMagicLinks has links that lead to a file without a name.
func TestMagicLinks(t *testing.T) {
	f, err := os.Open(fileOf(t, []byte("reached")))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skipf("needs /proc: %v", err)
	}
	r := openRoot(t, "/proc/self/fd", ufile.RootOptions{})
	if got, err := r.ReadFile(fmt.Sprint(f.Fd())); err == nil {
		t.Errorf("reads %q", got)
	}
}

// TestRootUnderRenames opens files while somebody exchanges a directory on the
// way with a link that leads outside: what is outside must not be reached.
func TestRootUnderRenames(t *testing.T) {
	for name, o := range map[string]ufile.RootOptions{"plain": {}, "strict": {NoXDev: true}} {
		t.Run(name, func(t *testing.T) {
			needOpenat2(t)
			dir := tree(t, "root/a/b/file", "root/a/trap>../../outside", "outside/file", "outside/b/file")
			r := openRoot(t, filepath.Join(dir, "root"), o)
			done := make(chan struct{})
			var rest sync.WaitGroup
			rest.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					if err := ufile.Exchange(filepath.Join(dir, "root/a/b"), filepath.Join(dir, "root/a/trap")); err != nil {
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
					// The exchanger may be stopped where nothing can be opened.
					for i := 0; i < 500 || opened.Load() == 0 && time.Now().Before(patience); i++ {
						got, err := r.ReadFile([]string{"a/b/file", "a/b/../b/file", "a/trap/../b/file"}[i%3])
						if err == nil {
							opened.Add(1)
							if string(got) != "root/a/b/file" {
								t.Errorf("reached %q", got)
							}
						}
					}
				})
			}
			readers.Wait()
			close(done)
			rest.Wait()
			if opened.Load() == 0 {
				t.Error("nothing was opened at all")
			}
		})
	}
}

// TestRootUncertain opens through ".." while something is renamed elsewhere,
// which makes the kernel unsure of where it is.
func TestRootUncertain(t *testing.T) {
	for name, o := range map[string]ufile.RootOptions{"plain": {}, "strict": {NoSymlinks: true}} {
		t.Run(name, func(t *testing.T) {
			needOpenat2(t)
			dir := tree(t, "root/a/b/c/file", "elsewhere/x")
			r := openRoot(t, filepath.Join(dir, "root"), o)
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
		})
	}
}

// TestRootCloseUnderOpen closes a Root while an open waits for a writer.
func TestRootCloseUnderOpen(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skipf("needs named pipes: %v", err)
	}
	r := openRoot(t, dir, ufile.RootOptions{})
	opened := make(chan error)
	go func() {
		f, err := r.Open("pipe")
		closeAll(f)
		opened <- err
	}()
	// Once this open has found the reader, that has begun; it may not have
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

// TestSuiteOnRootFiles runs the suite of files on those that a Root opens.
func TestSuiteOnRootFiles(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("the suite once more: without -short and -race")
	}
	for name, o := range map[string]ufile.RootOptions{"plain": {}, "strict": {NoXDev: true}} {
		t.Run(name, func(t *testing.T) {
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
				r, err := s.OpenRootWith(dir, o)
				if err != nil {
					return nil, err
				}
				defer r.Close()
				f, err := r.OpenFile(base, flag, perm)
				if e, ok := err.(*fs.PathError); ok { // which of os.Root differ from those of os.Open
					return nil, &fs.PathError{Op: "open", Path: name, Err: e.Err}
				}
				return f, err
			})
		})
	}
}

// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ringside-io/ringside/internal/sweep"
	"github.com/ringside-io/ringside/ufile"
)

// may is Judge for what file systems may lack.
func may(t *sweep.Trial, what string, err error) bool {
	if c, fired := t.Choice(); errors.Is(err, errors.ErrUnsupported) && !(fired && errors.Is(err, c.Errno)) {
		return false
	}
	return t.Judge(what, err)
}

// opening opens files in each way, and reads what they hold.
func (w *swept) opening(t *sweep.Trial) {
	w.with(t, ufile.ModeAuto, 0, func(_ *ufile.System, f *ufile.File) {
		made := filepath.Join(w.dir, "made")
		_ = os.Remove(made)
		std, err := os.Open(f.Name())
		if err != nil {
			t.Fatalf("%v", err)
		}
		t.Arm()
		defer t.Disarm()
		s, err := ufile.NewSystem(ufile.Options{})
		if err != nil {
			_ = std.Close()
			t.Fatalf("%v", err)
		}
		check := func(what string, open func() (*ufile.File, error)) {
			f, err := open()
			if !t.Judge(what, err) {
				return
			}
			defer f.Close()
			p := make([]byte, 4096)
			if what == "Create" {
				_, err = f.WriteAt(p, 0)
			} else if _, err = f.ReadAt(p, 4096); err == nil && !bytes.Equal(p, w.content[4096:8192]) {
				t.Errorf("%s: not the file's bytes", what)
			}
			t.Judge(what, err)
		}
		check("NewFile", func() (*ufile.File, error) { return s.NewFile(std) })
		check("Open", func() (*ufile.File, error) { return s.Open(f.Name()) })
		check("OpenFile", func() (*ufile.File, error) { return s.OpenFile(f.Name(), os.O_RDWR, 0) })
		check("Create", func() (*ufile.File, error) { return s.Create(made) })
		got, err := fs.ReadFile(s.DirFS(w.dir), "file")
		if t.Judge("DirFS", err) && !bytes.Equal(got, w.content) {
			t.Errorf("DirFS: %d bytes that are not the file's", len(got))
		}
	})
}

// attributes sets, reads and removes extended attributes, by the file and by its
// name.
func (w *swept) attributes(t *sweep.Trial) {
	w.with(t, ufile.ModeAuto, 0, func(s *ufile.System, f *ufile.File) {
		const attr = "user.ringside"
		_ = f.Removexattr(attr)
		t.Arm()
		defer t.Disarm()
		calls := func(what string, set func(value []byte) error, get func() ([]byte, error), list func() ([]string, error), remove func() error) {
			value := []byte(what)
			if !may(t, what+" set", set(value)) {
				return
			}
			got, err := get()
			if t.Judge(what+" get", err) && !bytes.Equal(got, value) {
				t.Errorf("%s: the attribute is %q", what, got)
			}
			names, err := list()
			if t.Judge(what+" list", err) && !slices.Contains(names, attr) {
				t.Errorf("%s: the attributes are %q", what, names)
			}
			if removed := t.Judge(what+" remove", remove()); removed {
				if _, err := get(); err == nil {
					t.Errorf("%s: the attribute is still there", what)
				}
			}
		}
		calls("File", func(v []byte) error { return f.Setxattr(attr, v, 0) }, func() ([]byte, error) { return f.Getxattr(attr) },
			f.Listxattr, func() error { return f.Removexattr(attr) })
		name := f.Name()
		calls("name", func(v []byte) error { return ufile.Setxattr(name, attr, v, 0) }, func() ([]byte, error) { return ufile.Getxattr(name, attr) },
			func() ([]string, error) { return ufile.Listxattr(name) }, func() error { return ufile.Removexattr(name, attr) })
	})
}

// renaming renames and exchanges: what is said to be done is, and nothing else.
func (w *swept) renaming(t *sweep.Trial) {
	dir := filepath.Join(w.dir, "renamed")
	name := func(n string) string { return filepath.Join(dir, n) }
	err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700), os.WriteFile(name("a"), []byte("a"), 0o600), os.WriteFile(name("b"), []byte("b"), 0o600))
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Arm()
	renamed := may(t, "RenameNoReplace", ufile.RenameNoReplace(name("a"), name("c")))
	exchanged := false
	if renamed {
		exchanged = may(t, "Exchange", ufile.Exchange(name("b"), name("c")))
	}
	t.Disarm()
	want := map[string]string{"a": "a", "b": "b"}
	if renamed {
		want = map[string]string{"c": "a", "b": "b"}
	}
	if exchanged {
		want = map[string]string{"c": "b", "b": "a"}
	}
	for n, holds := range want {
		if got, err := os.ReadFile(name(n)); err != nil || string(got) != holds {
			t.Errorf("%s holds %q, %v; want %q", n, got, err, holds)
		}
	}
}

// moreNames calls the methods of a root that names leaves out.
func (w *swept) moreNames(o ufile.RootOptions) func(t *sweep.Trial) {
	return func(t *sweep.Trial) {
		dir := filepath.Join(w.dir, "root2")
		if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
			t.Fatalf("%v", err)
		}
		s, err := ufile.NewSystem(ufile.Options{Mode: ufile.ModeSyscall})
		if err != nil {
			t.Fatalf("%v", err)
		}
		r, err := s.OpenRootWith(dir, o)
		if err != nil {
			t.Fatalf("%v", err)
		}
		defer r.Close()
		t.Arm()
		defer t.Disarm()
		f, err := r.Create("a")
		if !t.Judge("Create", err) {
			return
		}
		_ = f.Close()
		f, err = r.OpenFile("a", os.O_RDWR, 0)
		if t.Judge("OpenFile", err) {
			_ = f.Close()
		}
		w.rootLinks(t, r)
		w.rootModes(t, r, dir)
		w.rootAttributes(t, r)
		w.rootMoves(t, r, dir)
		t.Disarm()
		if err := r.RemoveAll("."); err == nil {
			t.Errorf("the root itself was removed")
		}
	}
}

// rootLinks makes links and reads them.
func (w *swept) rootLinks(t *sweep.Trial, r *ufile.Root) {
	if t.Judge("Link", r.Link("a", "hard")) {
		info, err := r.Lstat("hard")
		if t.Judge("Lstat", err) && !info.Mode().IsRegular() {
			t.Errorf("Lstat: %v", info.Mode())
		}
	}
	if t.Judge("Symlink", r.Symlink("a", "soft")) {
		to, err := r.Readlink("soft")
		if t.Judge("Readlink", err) && to != "a" {
			t.Errorf("Readlink: %q", to)
		}
		uid, gid := owner()
		t.Judge("Lchown", r.Lchown("soft", uid, gid))
	}
}

// rootModes changes what a name has, and looks.
func (w *swept) rootModes(t *sweep.Trial, r *ufile.Root, dir string) {
	stamp := time.Unix(1_000_000_000, 0)
	mode := t.Judge("Chmod", r.Chmod("a", 0o640))
	uid, gid := owner()
	t.Judge("Chown", r.Chown("a", uid, gid))
	timed := t.Judge("Chtimes", r.Chtimes("a", stamp, stamp))
	info, err := os.Stat(filepath.Join(dir, "a"))
	if err != nil || mode && info.Mode() != 0o640 || timed && !info.ModTime().Equal(stamp) {
		t.Errorf("the file is %v, %v; changed %v, %v", info, err, mode, timed)
	}
	sx, err := r.Statx("a", ufile.StatxBasic, 0)
	if t.Judge("Statx", err) && sx.Size != info.Size() {
		t.Errorf("Statx: %d bytes", sx.Size)
	}
}

func (w *swept) rootAttributes(t *sweep.Trial, r *ufile.Root) {
	const attr = "user.ringside"
	if !may(t, "Setxattr", r.Setxattr("a", attr, []byte("x"), 0)) {
		return
	}
	got, err := r.Getxattr("a", attr)
	if t.Judge("Getxattr", err) && string(got) != "x" {
		t.Errorf("the attribute is %q", got)
	}
	names, err := r.Listxattr("a")
	if t.Judge("Listxattr", err) && !slices.Contains(names, attr) {
		t.Errorf("the attributes are %q", names)
	}
	t.Judge("Removexattr", r.Removexattr("a", attr))
}

// rootMoves makes directories, renames, exchanges, lists and removes.
func (w *swept) rootMoves(t *sweep.Trial, r *ufile.Root, dir string) {
	there := func(name string) bool { _, err := os.Lstat(filepath.Join(dir, name)); return err == nil }
	if !t.Judge("MkdirAll", r.MkdirAll("d/e", 0o700)) {
		return
	}
	if may(t, "RenameNoReplace", r.RenameNoReplace("a", "d/a")) != there("d/a") {
		t.Errorf("RenameNoReplace has not done what it said")
	}
	if there("hard") {
		may(t, "Exchange", r.Exchange("d/e", "hard"))
	}
	entries, err := fs.ReadDir(r.FS(), "d")
	if t.Judge("ReadDir", err) && len(entries) == 0 {
		t.Errorf("FS: nothing is listed")
	}
	if there("d/a") && t.Judge("Remove", r.Remove("d/a")) && there("d/a") {
		t.Errorf("Remove has not removed")
	}
}

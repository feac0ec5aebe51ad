// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ringside-io/ringside/internal/sweep"
	"github.com/ringside-io/ringside/ufile"
)

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

// moreNames calls the methods of a root that names leaves out.
func (w *swept) moreNames(t *sweep.Trial) {
	dir := filepath.Join(w.dir, "root2")
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatalf("%v", err)
	}
	s, err := ufile.NewSystem(ufile.Options{Mode: ufile.ModeSyscall})
	if err != nil {
		t.Fatalf("%v", err)
	}
	r, err := s.OpenRoot(dir)
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
	w.rootMoves(t, r, dir)
	t.Disarm()
	if err := r.RemoveAll("."); err == nil {
		t.Errorf("the root itself was removed")
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
}

// rootMoves makes directories, renames, exchanges, lists and removes.
func (w *swept) rootMoves(t *sweep.Trial, r *ufile.Root, dir string) {
	there := func(name string) bool { _, err := os.Lstat(filepath.Join(dir, name)); return err == nil }
	if !t.Judge("MkdirAll", r.MkdirAll("d/e", 0o700)) {
		return
	}
	if t.Judge("Rename", r.Rename("a", "d/a")) != there("d/a") {
		t.Errorf("Rename has not done what it said")
	}
	entries, err := fs.ReadDir(r.FS(), "d")
	if t.Judge("ReadDir", err) && len(entries) == 0 {
		t.Errorf("FS: nothing is listed")
	}
	if there("d/a") && t.Judge("Remove", r.Remove("d/a")) && there("d/a") {
		t.Errorf("Remove has not removed")
	}
}

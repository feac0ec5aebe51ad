// SPDX-License-Identifier: MIT

package ufiletest

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// rootNames are kinds of names below a playground.
func rootNames() []string {
	plain := []string{"file", "dir", "dir/in", "empty", "missing", "missing/x", "file/x", "dir/missing", "dir/deep/est"}
	shapes := []string{
		"", ".", "./", "./file", "dir/.", "dir/./in", "dir//in", "file/", "dir/", "dir///", "missing/", "dir/missing/",
		"..", "../", "../root/file", "../outside/secret", "dir/..", "dir/../", "dir/../file", "dir/../missing",
		"dir/../../outside/secret", "missing/../file", "file/../file", "dir/../..", "dir/deep/../../file", "/", "/file", "nul\x00",
		strings.Repeat("x", 300), strings.Repeat("dir/../", 5) + "file", strings.Repeat("./", 3000) + "file",
	}
	through := []string{
		"link/", "link/x", "dirlink/", "dirlink/in", "dirlink/missing", "dirlink/..", "dirlink/../file", "dirlink/up",
		"dangling/", "dangling/x", "loop/x", "outdir/", "outdir/secret", "outdir/../root/file", "dotlink/file", "dotlink/dotlink/dir/in",
		"slashlink/in",
	}
	names := slices.Concat(plain, shapes, through, sortedKeys(links))
	slices.Sort(names)
	return slices.Compact(names)
}

// short names a name in a transcript.
func short(name string) string {
	if len(name) > 60 {
		return fmt.Sprintf("%.20q… of %d bytes", name, len(name))
	}
	return fmt.Sprintf("%q", name)
}

// rootDirectory opens Roots by names of directories and by other names.
func rootDirectory(c *rootScript) {
	c.ground()
	base := c.path("1/root")
	for _, name := range []string{"", "/.", "/dir", "/dir/", "/file", "/missing", "/dirlink", "/outdir", "/dangling", "/link"} {
		r, err := c.openRoot(base + filepath.FromSlash(name))
		if err != nil {
			c.note("OpenRoot(%q) = %s", name, describe(err))
			continue
		}
		c.roots = append(c.roots, r)
		c.note("OpenRoot(%q).Name() = %s", name, r.Name())
		c.look(r, ".")
		c.note("Close = %s", describe(r.Close()))
		c.note("Close again = %s", describe(r.Close()))
		c.look(r, ".")
		c.try("Name", r.Name)
	}
	if r, err := c.openRoot(""); err == nil {
		c.roots = append(c.roots, r)
		c.note("opens the root of no name")
	}
}

// look is Stat.
func (c *rootScript) look(r Root, name string) {
	info, err := r.Stat(name)
	c.note("Stat(%s) = %s", short(name), described(info, err))
}

func described(info fs.FileInfo, err error) string {
	if err != nil {
		return describe(err)
	}
	return fmt.Sprintf("%s %v %v", info.Name(), info.Mode(), info.IsDir() || info.Size() >= 0)
}

// commonFlags are flags that every system has.
var commonFlags = []int{os.O_WRONLY, os.O_RDWR, os.O_RDWR | os.O_CREATE, os.O_WRONLY | os.O_CREATE | os.O_EXCL, os.O_RDWR | os.O_TRUNC,
	os.O_WRONLY | os.O_APPEND, os.O_RDWR | os.O_CREATE | os.O_TRUNC}

// rootOpen opens each kind of name with each kind of flag.
func rootOpen(c *rootScript) {
	for _, name := range rootNames() {
		for _, flag := range slices.Concat(rootFlags(), []int{0}) {
			c.changing(func(r Root) {
				f, err := r.OpenFile(name, flag, 0o640)
				c.opened(fmt.Sprintf("OpenFile(%s, %#x)", short(name), flag), f, err)
			})
		}
		c.changing(func(r Root) {
			_, err := r.OpenFile(name, os.O_RDONLY, 0o4755)
			c.note("OpenFile with another mode = %s", describe(err))
		})
	}
}

// rootLook makes the calls that change nothing.
func rootLook(c *rootScript) {
	r := c.ground()
	for _, name := range rootNames() {
		c.look(r, name)
		info, err := r.Lstat(name)
		c.note("Lstat(%s) = %s", short(name), described(info, err))
		target, err := r.Readlink(name)
		c.note("Readlink(%s) = %s, %s", short(name), target, describe(err))
		data, err := r.ReadFile(name)
		c.note("ReadFile(%s) = %s, %s", short(name), digest(data), describe(err))
		if st, err := r.Stat(name); err == nil {
			c.same(r, name, st)
		}
	}
	c.note("leaves%s", c.everything())
}

// same checks that Open opens the file that Stat describes.
func (c *rootScript) same(r Root, name string, st fs.FileInfo) {
	if !st.Mode().IsRegular() && !st.IsDir() {
		return
	}
	f, err := r.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		c.note("OpenFile(%s) = %s", short(name), describe(err))
		return
	}
	defer f.Close()
	info, err := f.Stat()
	c.note("the same: %v, %s", err == nil && os.SameFile(st, info), describe(err))
}

// rootChange makes each call that changes something, with each kind of name.
func rootChange(c *rootScript) {
	for _, call := range []struct {
		what string
		do   func(r Root, name string) error
	}{
		{"Chmod", func(r Root, name string) error { return r.Chmod(name, 0o751) }},
		{"Chown", func(r Root, name string) error { return r.Chown(name, os.Getuid(), os.Getgid()) }},
		{"Lchown", func(r Root, name string) error { return r.Lchown(name, os.Getuid(), os.Getgid()) }},
		{"Chtimes", func(r Root, name string) error { return r.Chtimes(name, time.Time{}, someTime) }},
		{"Mkdir", func(r Root, name string) error { return r.Mkdir(name, 0o750) }},
		{"Mkdir with another mode", func(r Root, name string) error { return r.Mkdir(name, 0o1750) }},
		{"MkdirAll", func(r Root, name string) error { return r.MkdirAll(name, 0o750) }},
		{"MkdirAll below", func(r Root, name string) error { return r.MkdirAll(name+"/new/dir", 0o750) }},
		{"Remove", func(r Root, name string) error { return r.Remove(name) }},
		{"RemoveAll", func(r Root, name string) error { return r.RemoveAll(name) }},
		{"Symlink", func(r Root, name string) error { return r.Symlink("../outside", name) }},
		{"WriteFile", func(r Root, name string) error { return r.WriteFile(name, []byte("written"), 0o640) }},
	} {
		for _, name := range rootNames() {
			c.changing(func(r Root) { c.note("%s(%s) = %s", call.what, short(name), describe(call.do(r, name))) })
		}
	}
}

// rootTwo makes the calls that take two names.
func rootTwo(c *rootScript) {
	few := []string{"file", "dir", "dir/", "empty", "missing", "missing/", "dir/new", "link", "dirlink", "dirlink/new", "dangling",
		"outdir/new", "../outside/new", "/new", "..", ".", "", "no/x", "new/", "file/"}
	for _, call := range []struct {
		what string
		do   func(r Root, from, to string) error
	}{
		{"Rename", func(r Root, from, to string) error { return r.Rename(from, to) }},
		{"Link", func(r Root, from, to string) error { return r.Link(from, to) }},
	} {
		for _, from := range few {
			for _, to := range few {
				c.changing(func(r Root) { c.note("%s(%q, %q) = %s", call.what, from, to, describe(call.do(r, from, to))) })
			}
		}
	}
}

// rootSub opens Roots below a Root.
func rootSub(c *rootScript) {
	r := c.ground()
	for _, name := range rootNames() {
		sub, err := r.OpenRoot(name)
		if err != nil {
			c.note("OpenRoot(%s) = %s", short(name), describe(err))
			continue
		}
		c.note("OpenRoot(%s).Name() = %s", short(name), sub.Name())
		for _, name := range []string{".", "..", "in", "deep/../in", "up", "../file", "/in"} {
			f, err := sub.OpenFile(name, os.O_RDONLY, 0)
			c.opened("OpenFile("+name+")", f, err)
		}
		c.note("Close = %s", describe(sub.Close()))
	}
}

// rootMoved moves the directory of an open Root, with its content.
func rootMoved(c *rootScript) {
	r := c.ground()
	f, err := r.OpenFile("dir", os.O_RDONLY, 0)
	c.must(err)
	c.files = append(c.files, f)
	c.must(os.Rename(c.path("1/root"), c.path("1/moved")))
	for _, name := range []string{".", "file", "dir/in", "back", "../outside/secret", "link"} {
		c.look(r, name)
		g, err := r.OpenFile(name, os.O_RDONLY, 0)
		c.opened("OpenFile("+name+")", g, err)
	}
	c.listed(f) // by no path: there is none any more
	c.note("Mkdir = %s", describe(r.Mkdir("new", 0o700)))
	c.note("leaves%s", c.everything())
	c.must(os.RemoveAll(c.path("1/moved")))
	c.look(r, ".")
	_, err = r.OpenFile("file", os.O_RDWR|os.O_CREATE, 0o600)
	c.note("OpenFile in what is gone = %s", describe(err))
}

// rootClosed makes calls on a closed Root. Files that the Root has opened stay open.
func rootClosed(c *rootScript) {
	r := c.ground()
	f, err := r.OpenFile("file", os.O_RDWR, 0)
	c.must(err)
	c.files = append(c.files, f)
	fsys := r.FS()
	c.note("Close = %s", describe(r.Close()))
	c.readAt(f, 4, 4)
	_, err = fsys.Open("file")
	c.note("FS.Open = %s", describe(err))
	for _, name := range []string{"file", "missing", "", "../x"} {
		g, err := r.OpenFile(name, os.O_RDONLY, 0)
		c.opened("OpenFile", g, err)
		_, err = r.OpenRoot(name)
		c.note("OpenRoot = %s", describe(err))
		c.look(r, name)
		c.note("Remove = %s", describe(r.Remove(name)))
		c.note("Rename = %s", describe(r.Rename(name, "other")))
		c.note("Symlink = %s", describe(r.Symlink(name, "other")))
		_, err = r.ReadFile(name)
		c.note("ReadFile = %s", describe(err))
	}
	c.note("Close again = %s", describe(r.Close()))
}

// rootFiles checks that files are as usable as others.
func rootFiles(c *rootScript) {
	r := c.ground()
	f, err := r.OpenFile("new", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	c.must(err)
	c.files = append(c.files, f)
	for i := range 10 {
		c.writeAt(f, pattern(1000, byte(i)), int64(i)*1000)
	}
	c.readAt(f, 3000, 2500)
	c.readAt(f, 3000, 9500)
	c.seek(f, -10, io.SeekEnd)
	c.read(f, 20)
	c.stat(f)
	c.note("Sync = %s", describe(f.Sync()))
	c.note("SetDeadline = %s", describe(f.SetDeadline(time.Now())))
	a, err := r.OpenFile("new", os.O_WRONLY|os.O_APPEND, 0)
	c.must(err)
	c.files = append(c.files, a)
	c.writeAt(a, []byte("x"), 0)
	c.write(a, []byte("appended"))
	c.readAt(f, 20, 9995)
	data, err := r.ReadFile("new")
	c.note("ReadFile = %s, %s", digest(data), describe(err))
	c.note("WriteFile = %s", describe(r.WriteFile("new", nil, 0o600)))
	c.stat(f)
	c.specialFiles(r)
	c.note("leaves%s", c.everything())
}

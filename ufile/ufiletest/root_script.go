// SPDX-License-Identifier: MIT

package ufiletest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// rootScript performs calls on the Roots of one implementation. Its directory holds
// playgrounds. Each has a directory that becomes a Root, and another directory that must
// not be reached.
type rootScript struct {
	*script
	openRoot func(dir string) (Root, error)
	roots    []Root
	grounds  int

	untouched string // everything in a playground as new
	share     share
	turn      int // of the combinations
}

func compareRoots(t *testing.T, open func(dir string) (Root, error), share share, play func(c *rootScript)) {
	t.Helper()
	needSymlinks(t)
	want := performRoot(t, OSRoot, share, play)
	got := performRoot(t, open, share, play)
	compareLines(t, got, want, "os.Root")
}

// compareLines reports how two transcripts differ.
func compareLines(t *testing.T, got, want []string, who string) {
	t.Helper()
	if len(want) == 0 {
		t.Fatal("the script says nothing")
	}
	const most = 10
	differences := 0
	for i := range max(len(got), len(want)) {
		g, w := line(got, i), line(want, i)
		if g == w {
			continue
		}
		if differences++; differences <= most {
			t.Errorf("step %d:\n got %s\nwant %s, as %s", i, g, w, who)
		}
	}
	if differences > most {
		t.Errorf("and %d more differences", differences-most)
	}
}

func performRoot(t *testing.T, open func(dir string) (Root, error), share share, play func(c *rootScript)) []string {
	t.Helper()
	c := &rootScript{script: &script{t: t, dir: filepath.Join(t.TempDir(), "files")}, openRoot: open, share: share}
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	defer c.end()
	play(c)
	return c.lines
}

func (c *rootScript) end() {
	c.script.end()
	for _, r := range c.roots {
		_ = r.Close() // may have been closed by the script
	}
}

// must fails the test if err is not nil. It is for calls that prepare a script.
func (c *rootScript) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// links are the symbolic links of a playground. An absolute target is below
// the playground.
var links = map[string]string{
	"link": "file", "dirlink": "dir", "slashlink": "dir/", "dotlink": ".", "twice": "dirlink/in",
	"dangling": "nowhere", "danglingdeep": "no/where", "loop": "loop",
	"out": "../outside/secret", "outdir": "../outside", "back": "../root/file", "abs": "/root/file",
	"dir/up": "../file", "dir/out": "../../outside/secret", "dir/side": "in",
	"chain1": "file", "chain2": "chain1", "chain3": "chain2", "chain4": "chain3",
	"chain5": "chain4", "chain6": "chain5", "chain7": "chain6", "chain8": "chain7",
}

// ground makes a playground and returns its Root.
func (c *rootScript) ground() Root {
	c.t.Helper()
	c.grounds++
	base := c.path(fmt.Sprint(c.grounds))
	for _, dir := range []string{"root/dir/deep", "root/empty", "outside"} {
		c.must(os.MkdirAll(filepath.Join(base, filepath.FromSlash(dir)), 0o700))
	}
	for name, content := range map[string]string{
		"root/file": "the file", "root/dir/in": "in the directory", "root/dir/deep/est": "", "outside/secret": "SECRET",
	} {
		c.must(os.WriteFile(filepath.Join(base, filepath.FromSlash(name)), []byte(content), 0o600))
	}
	for name, target := range links {
		if strings.HasPrefix(target, "/") {
			target = base + target
		}
		c.must(os.Symlink(filepath.FromSlash(target), filepath.Join(base, "root", filepath.FromSlash(name))))
	}
	c.special(filepath.Join(base, "root"))
	r, err := c.openRoot(filepath.Join(base, "root"))
	c.must(err)
	c.roots = append(c.roots, r)
	return r
}

// everything describes all files of the playground that was made last.
func (c *rootScript) everything() string {
	base := c.path(fmt.Sprint(c.grounds))
	var b strings.Builder
	err := filepath.WalkDir(base, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		what, err := c.entry(path, e)
		fmt.Fprintf(&b, " %s(%s)", strings.TrimPrefix(path, base), what)
		return err
	})
	c.must(err)
	return b.String()
}

// entry describes a file of a playground.
func (c *rootScript) entry(path string, e fs.DirEntry) (string, error) {
	if e.Type()&fs.ModeSymlink != 0 {
		return os.Readlink(path)
	}
	info, err := e.Info()
	if err != nil {
		return "", err
	}
	what := info.Mode().String()
	if info.ModTime().Equal(someTime) {
		what += " with its time set"
	}
	if info.Mode().IsRegular() && info.Size() > 0 {
		data, err := os.ReadFile(path)
		return what + " " + digest(data), err
	}
	return what, nil
}

// share is a part of the combinations of calls and names.
type share struct{ part, parts int }

// changing makes a call that may change files, if it is in the share. The call gets a new
// playground, and changing records the files afterwards.
func (c *rootScript) changing(call func(r Root)) {
	c.t.Helper()
	if c.turn++; c.turn%c.share.parts != c.share.part {
		return
	}
	if c.grounds == 0 {
		c.ground()
	}
	if c.untouched == "" {
		c.untouched = c.everything()
	}
	call(c.roots[len(c.roots)-1])
	if now := c.everything(); now != c.untouched {
		c.note("leaves%s", now)
		c.discard()
	}
}

// discard removes the playground that was made last, so that the next one gets its
// number.
func (c *rootScript) discard() {
	last := len(c.roots) - 1
	_ = c.roots[last].Close() // like os.Root's, it always returns nil
	c.roots = c.roots[:last]
	c.must(os.RemoveAll(c.path(fmt.Sprint(c.grounds))))
	c.grounds--
}

// someTime is the time that Chtimes sets.
var someTime = time.Unix(1_000_000_000, 0)

// opened records the result of opening a file, and closes the file.
func (c *rootScript) opened(call string, f File, err error) {
	if err != nil {
		c.note("%s = %s", call, describe(err))
		return
	}
	defer f.Close()
	c.label = call + ": "
	defer func() { c.label = "" }()
	c.try("Name", f.Name)
	info, err := f.Stat()
	if err != nil {
		c.note("Stat = %s", describe(err))
		return
	}
	c.note("%s %v", info.Name(), info.Mode())
	if info.IsDir() {
		c.listed(f)
		return
	}
	if info.Mode().IsRegular() {
		c.readAt(f, 30, 0)
		c.write(f, nil)
	}
}

// listed records the entries of a directory, and what the entries report.
func (c *rootScript) listed(f File) {
	entries, err := f.ReadDir(-1)
	lines := make(map[string]string)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			lines[e.Name()] = describe(err)
			continue
		}
		lines[e.Name()] = fmt.Sprintf("%s %v %v", info.Name(), e.Type(), info.Mode())
	}
	c.note("ReadDir = %v, %s", len(lines), describe(err))
	for _, name := range sortedKeys(lines) {
		c.note("%s: %s", name, lines[name])
	}
}

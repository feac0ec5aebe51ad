// SPDX-License-Identifier: MIT

package ufiletest

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
)

// compareFS makes each call with each kind of name on two file systems, and compares the
// results.
func compareFS(t *testing.T, want, got func(t *testing.T, dir string) fs.FS) {
	t.Helper()
	needSymlinks(t)
	dir := fsTree(t)
	compareLines(t, fsLines(dir, got(t, dir)), fsLines(dir, want(t, dir)), "os")
}

func fsLines(dir string, fsys fs.FS) []string {
	var lines []string
	note := func(format string, args ...any) {
		lines = append(lines, strings.ReplaceAll(fmt.Sprintf(format, args...), dir, "DIR"))
	}
	for _, prefix := range []string{".", "sub", "missing", "a.txt", "../sub", ""} {
		part, err := fs.Sub(fsys, prefix)
		note("Sub(%q) = %s", prefix, describe(err))
		if err != nil {
			continue
		}
		for _, name := range []string{".", "a.txt", "b.bin", "empty", "sub", "sub/b.bin", "deep", "up", "link", "dirlink", "dirlink/b.bin",
			"missing", "a.txt/x", "", "/", "/a.txt", "..", "../a.txt", "sub/", "sub//b.bin", "./a.txt", "sub/../a.txt", `sub\b.bin`, "nul\x00"} {
			fsCalls(note, part, prefix, name)
		}
	}
	return lines
}

func fsCalls(note func(string, ...any), fsys fs.FS, prefix, name string) {
	at := fmt.Sprintf("%q of %q", name, prefix)
	if f, err := fsys.Open(name); err != nil {
		note("Open(%s) = %s", at, describe(err))
	} else {
		info, err := f.Stat()
		note("Open(%s).Stat() = %s", at, described(info, err))
		note("Close = %s", describe(f.Close()))
	}
	data, err := fs.ReadFile(fsys, name)
	note("ReadFile(%s) = %s, %s", at, digest(data), describe(err))
	entries, err := fs.ReadDir(fsys, name)
	note("ReadDir(%s) = %s, %s", at, names(entries), describe(err))
	info, err := fs.Stat(fsys, name)
	note("Stat(%s) = %s", at, described(info, err))
	info, err = fs.Lstat(fsys, name)
	note("Lstat(%s) = %s", at, described(info, err))
	target, err := fs.ReadLink(fsys, name)
	note("ReadLink(%s) = %q, %s", at, target, describe(err))
}

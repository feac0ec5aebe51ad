// SPDX-License-Identifier: MIT

package ufile

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
)

// pathOpener opens names for what os.Root lacks.
type pathOpener interface {
	// openPath opens what a name leads to with O_PATH; with nofollow, a symbolic
	// link at its end itself. The error is bare.
	openPath(name string, nofollow bool) (*os.File, error)
}

// errEmpty is what os.Root says of no name.
var errEmpty = errors.New("empty path")

func (r *beneathRoot) openPath(name string, nofollow bool) (*os.File, error) {
	if r.reason == "" {
		flags := sys.OPath
		if nofollow {
			flags |= syscall.O_NOFOLLOW
		}
		if fd, err := r.dir.open(name, flags, 0, beneath); err == nil {
			return os.NewFile(uintptr(fd), name), nil
		}
	}
	return openPathByOs(r.Root, name, nofollow)
}

// openPathByOs opens with O_PATH by os.Root, which then does not follow a link
// at the end of the name.
func openPathByOs(r *os.Root, name string, nofollow bool) (*os.File, error) {
	const links = 8 // as many as os.Root follows
	for range links + 1 {
		f, err := r.OpenFile(name, sys.OPath, 0)
		if err != nil {
			return nil, cause(err)
		}
		if nofollow {
			return f, nil
		}
		target, err := sys.ReadlinkAt(int(f.Fd()), "")
		if err != nil { // is none
			return f, nil
		}
		f.Close()
		if strings.HasPrefix(target, "/") {
			return nil, errEscapes
		}
		// Joined, but not cleaned: a directory before ".." may be a link too.
		dir, _, _ := splitName(name)
		name = dir + "/" + target
	}
	return nil, syscall.ELOOP
}

// splitName splits a name into a directory and the name in it, which is not
// ".." and has no slash; slash says that there was one.
func splitName(name string) (dir, base string, slash bool) {
	trimmed := strings.TrimRight(name, "/")
	slash = len(trimmed) < len(name)
	dir, base = path.Split(trimmed)
	switch {
	case trimmed == "": // the root of all, which the caller finds out
		return name, ".", slash
	case base == "..":
		return trimmed, ".", slash
	case dir == "":
		dir = "."
	}
	return dir, base, slash
}

// parentOf opens the directory that a name is in.
func parentOf(o pathOpener, name string) (dir *os.File, base string, slash bool, err error) {
	if name == "" {
		return nil, "", false, errEmpty
	}
	parent, base, slash := splitName(name)
	dir, err = o.openPath(parent, false)
	return dir, base, slash, err
}

// isDirAt says whether a name in a directory is a directory, and not a link to
// one.
func isDirAt(dir *os.File, base string) bool { return sys.IsDirAt(int(dir.Fd()), base) }

// renameBeneath is renameat2 below a directory.
func renameBeneath(o pathOpener, oldname, newname string, how uint) error {
	oldDir, oldBase, oldSlash, err := parentOf(o, oldname)
	if err != nil {
		return err
	}
	defer oldDir.Close()
	newDir, newBase, newSlash, err := parentOf(o, newname)
	if err != nil {
		return err
	}
	defer newDir.Close()
	switch {
	case how == 0 && isDirAt(newDir, newBase): // as os.Rename; the kernel would replace an empty one
		if _, err := sys.ReadlinkAt(int(oldDir.Fd()), oldBase); err == syscall.ENOENT {
			return err
		}
		return syscall.EEXIST
	case (oldSlash || newSlash) && !isDirAt(oldDir, oldBase),
		newSlash && how == renameExchange && !isDirAt(newDir, newBase):
		return syscall.ENOTDIR
	}
	return sys.RenameAt2(int(oldDir.Fd()), oldBase, int(newDir.Fd()), newBase, how)
}

func statxBeneath(o pathOpener, name string, mask StatxMask, flags StatxFlags) (StatxInfo, error) {
	f, err := o.openPath(name, flags&StatxNoFollow != 0)
	var st StatxInfo
	if err == nil {
		defer f.Close()
		st, err = statxFile(int(f.Fd()), f, mask, flags&^StatxNoFollow)
	}
	return st, pathError("statx", name, err)
}

// procName is a name that leads to an open file, for calls that take no
// descriptor, or none of O_PATH.
func procName(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// noProc says that procName leads nowhere: what is open exists.
func noProc(err error) error {
	if err == syscall.ENOENT {
		return fmt.Errorf("needs /proc: %w", errors.ErrUnsupported)
	}
	return err
}

func inodeBeneath(o pathOpener, op, name string, call func(i inode) error) error {
	f, err := o.openPath(name, false)
	if err == nil {
		defer f.Close()
		err = noProc(call(inode{Name: procName(f)}))
	}
	return pathError(op, name, err)
}

func (r *beneathRoot) statx(name string, mask StatxMask, flags StatxFlags) (StatxInfo, error) {
	return statxBeneath(r, name, mask, flags)
}

func (r *beneathRoot) rename2(oldname, newname string, how uint) error {
	return linkError("renameat", oldname, newname, renameBeneath(r, oldname, newname, how))
}

func (r *beneathRoot) withInode(op, name string, call func(i inode) error) error {
	return inodeBeneath(r, op, name, call)
}

// SPDX-License-Identifier: MIT

package ufile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
)

// strictRoot restricts names beyond what os.Root can: each name, or the
// directory part of what is not to be followed, is resolved by openat2.
type strictRoot struct {
	name    string
	dir     dirHandle
	resolve uint64
}

func newStrictRoot(name string, dir dirHandle, o RootOptions) *strictRoot {
	r := &strictRoot{name: name, dir: dir, resolve: beneath}
	if o.NoSymlinks {
		r.resolve |= sys.ResolveNoSymlinks
	}
	if o.NoXDev {
		r.resolve |= sys.ResolveNoXDev
	}
	return r
}

func (r *strictRoot) Name() string { return r.name }

func (r *strictRoot) Close() error {
	r.dir.close()
	return nil
}

func (r *strictRoot) backend() (name, reason string) { return "openat2", "" }

func (r *strictRoot) confined() bool { return true }

// open opens a name; the error is bare.
func (r *strictRoot) open(name string, flags int, mode uint32) (int, error) {
	if name == "" {
		return -1, errEmpty
	}
	fd, err := r.dir.open(name, flags, mode, r.resolve)
	if err == syscall.EXDEV {
		return -1, r.whyXDev(name)
	}
	return fd, err
}

// whyXDev tells leaving the directory from crossing into another mount.
func (r *strictRoot) whyXDev(name string) error {
	if r.resolve&sys.ResolveNoXDev == 0 {
		return errEscapes
	}
	fd, err := r.dir.open(name, sys.OPath, 0, r.resolve&^sys.ResolveNoXDev)
	if err == syscall.EXDEV {
		return errEscapes
	}
	if err == nil {
		_ = sys.NewFD(fd).Close() // nothing was done with it
	}
	return syscall.EXDEV
}

func (r *strictRoot) openPath(name string, nofollow bool) (*os.File, error) {
	flags := sys.OPath
	if nofollow {
		flags |= syscall.O_NOFOLLOW
	}
	fd, err := r.open(name, flags, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (r *strictRoot) OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	err := errMode
	if perm&0o777 == perm {
		var fd int
		if fd, err = r.open(name, flag|sys.OLargefile, uint32(perm)); err == nil {
			return adoptFD(fd, joinName(r.name, name), flag, true), nil
		}
	}
	return nil, &fs.PathError{Op: "openat", Path: name, Err: err}
}

func (r *strictRoot) openRoot(name string) (tree, error) {
	sub, err := r.sub(name, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "openat", Path: name, Err: err}
	}
	return sub, nil
}

// sub opens a directory that can be listed.
func (r *strictRoot) sub(name string, flags int) (*strictRoot, error) {
	fd, err := r.open(name, syscall.O_RDONLY|syscall.O_DIRECTORY|flags, 0)
	if err != nil {
		return nil, err
	}
	full := joinName(r.name, name)
	dir, err := handle(os.NewFile(uintptr(fd), full))
	if err != nil {
		return nil, err
	}
	return &strictRoot{full, dir, r.resolve}, nil
}

// onPath calls with what a name leads to, and makes a PathError of the error.
func (r *strictRoot) onPath(op, name string, nofollow bool, call func(f *os.File) error) error {
	f, err := r.openPath(name, nofollow)
	if err == nil {
		defer f.Close()
		err = cause(call(f))
	}
	return pathError(op, name, err)
}

// inParent calls with the directory that a name is in.
func (r *strictRoot) inParent(name string, call func(dir int, base string, slash bool) error) error {
	dir, base, slash, err := parentOf(r, name)
	if err != nil {
		return err
	}
	defer dir.Close()
	return call(int(dir.Fd()), base, slash)
}

func (r *strictRoot) Stat(name string) (info fs.FileInfo, err error) {
	err = r.onPath("statat", name, false, func(f *os.File) error {
		info, err = f.Stat()
		return err
	})
	return info, err
}

func (r *strictRoot) Lstat(name string) (info fs.FileInfo, err error) {
	err = r.onPath("statat", name, true, func(f *os.File) error {
		info, err = f.Stat()
		return err
	})
	return info, err
}

func (r *strictRoot) Chmod(name string, mode fs.FileMode) error {
	return r.onPath("chmodat", name, false, func(f *os.File) error { return noProc(cause(os.Chmod(procName(f), mode))) })
}

func (r *strictRoot) Chtimes(name string, atime, mtime time.Time) error {
	return r.onPath("chtimesat", name, false, func(f *os.File) error { return noProc(cause(os.Chtimes(procName(f), atime, mtime))) })
}

func (r *strictRoot) Chown(name string, uid, gid int) error {
	return r.onPath("chownat", name, false, func(f *os.File) error {
		return sys.FchownAt(int(f.Fd()), "", uid, gid, sys.AtEmptyPath)
	})
}

func (r *strictRoot) Lchown(name string, uid, gid int) error {
	return r.onPath("lchownat", name, true, func(f *os.File) error {
		return sys.FchownAt(int(f.Fd()), "", uid, gid, sys.AtEmptyPath)
	})
}

func (r *strictRoot) Mkdir(name string, perm fs.FileMode) error {
	err := errMode
	if perm&0o777 == perm {
		err = r.inParent(name, func(dir int, base string, _ bool) error { return sys.MkdirAt(dir, base, uint32(perm)) })
	}
	return pathError("mkdirat", name, err)
}

func (r *strictRoot) MkdirAll(name string, perm fs.FileMode) error {
	if perm&0o777 != perm {
		return pathError("mkdirat", name, errMode)
	}
	for i := 1; i < len(name); i++ {
		if name[i] != '/' || name[i-1] == '/' {
			continue
		}
		err := r.mkdirMissing(name[:i], perm)
		if errors.Is(err, fs.ErrExist) { // and is no directory
			err = pathError("openat", name[:i], syscall.ENOTDIR)
		}
		if err != nil {
			return err
		}
	}
	return r.mkdirMissing(name, perm)
}

// mkdirMissing creates a directory unless it, or a link to one, is there.
func (r *strictRoot) mkdirMissing(name string, perm fs.FileMode) error {
	err := r.Mkdir(name, perm)
	if err == nil {
		return nil
	}
	info, statErr := r.Stat(name)
	switch {
	case statErr == nil && info.IsDir():
		return nil
	case statErr != nil && !errors.Is(statErr, fs.ErrNotExist):
		return pathError("mkdirat", name, cause(statErr))
	}
	return err
}

func (r *strictRoot) Readlink(name string) (target string, err error) {
	err = r.inParent(name, func(dir int, base string, slash bool) error {
		if slash { // says that it is a directory
			return syscall.EINVAL
		}
		target, err = sys.ReadlinkAt(dir, base)
		return err
	})
	return target, pathError("readlinkat", name, err)
}

func (r *strictRoot) Remove(name string) error { return pathError("removeat", name, r.remove(name)) }

// remove removes a file or, failing that, a directory. The error is that of the
// call that was meant, as far as that can be told.
func (r *strictRoot) remove(name string) error {
	return r.inParent(name, func(dir int, base string, slash bool) error {
		fileErr := error(syscall.ENOTDIR) // what ends in a slash is no file
		if !slash {
			fileErr = sys.UnlinkAt(dir, base, 0)
		}
		if fileErr == nil {
			return nil
		}
		if dirErr := sys.UnlinkAt(dir, base, sys.AtRemoveDir); dirErr != syscall.ENOTDIR {
			return dirErr
		}
		return fileErr
	})
}

func (r *strictRoot) RemoveAll(name string) error {
	trimmed := strings.TrimRight(name, "/")
	err := error(syscall.EINVAL)
	if trimmed != "." && !strings.HasSuffix(trimmed, "/.") {
		err = r.removeAll(trimmed)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return pathError("RemoveAll", name, err)
}

// removeAll empties and removes a directory, never through a link and never,
// with NoXDev, what is mounted in it.
func (r *strictRoot) removeAll(name string) error {
	err := r.remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	sub, subErr := r.sub(name, syscall.O_NOFOLLOW)
	switch {
	case subErr == syscall.ENOTDIR, subErr == syscall.ELOOP:
		return err
	case subErr != nil:
		return subErr
	}
	defer sub.Close()
	if err := sub.empty(); err != nil {
		return err
	}
	return r.remove(name)
}

// empty removes what is in the directory.
func (r *strictRoot) empty() error {
	const atOnce = 1024
	for {
		fd, err := r.open(".", syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), r.name)
		names, err := f.Readdirnames(atOnce)
		f.Close()
		if len(names) == 0 {
			if err == io.EOF {
				err = nil
			}
			return cause(err)
		}
		failed := 0
		var first error
		for _, name := range names {
			if err := r.removeAll(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				failed++
				if first == nil {
					first = err
				}
			}
		}
		if failed == len(names) || len(names) < atOnce && first != nil {
			return first
		}
	}
}

func (r *strictRoot) Rename(oldname, newname string) error {
	return linkError("renameat", oldname, newname, renameBeneath(r, oldname, newname, 0))
}

func (r *strictRoot) Link(oldname, newname string) error {
	return linkError("linkat", oldname, newname, r.inParent(oldname, func(oldDir int, oldBase string, oldSlash bool) error {
		return r.inParent(newname, func(newDir int, newBase string, newSlash bool) error {
			if oldSlash || newSlash { // says that it is a directory, which has one name only
				return syscall.ENOTDIR
			}
			return sys.LinkAt(oldDir, oldBase, newDir, newBase)
		})
	}))
}

func (r *strictRoot) Symlink(oldname, newname string) error {
	return linkError("symlinkat", oldname, newname, r.inParent(newname, func(dir int, base string, slash bool) error {
		if slash {
			return syscall.ENOENT
		}
		return sys.SymlinkAt(oldname, dir, base)
	}))
}

func (r *strictRoot) statx(name string, mask StatxMask, flags StatxFlags) (StatxInfo, error) {
	return statxBeneath(r, name, mask, flags)
}

func (r *strictRoot) rename2(oldname, newname string, how uint) error {
	return linkError("renameat", oldname, newname, renameBeneath(r, oldname, newname, how))
}

func (r *strictRoot) withInode(op, name string, call func(i inode) error) error {
	return inodeBeneath(r, op, name, call)
}

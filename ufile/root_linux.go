// SPDX-License-Identifier: MIT

package ufile

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
)

// beneathRoot opens files by openat2. os.Root does everything else, and decides about
// names that openat2 refuses.
type beneathRoot struct {
	*os.Root
	dir    dirHandle
	reason string // why not by openat2; "" if by openat2
}

// beneath is how names are resolved. The kernel documents that magic links are
// refused beneath a directory "currently".
const beneath = sys.ResolveBeneath | sys.ResolveNoMagiclinks

// openTree opens a directory by os.Root, and tries whether openat2 can be used below it.
func openTree(name string) (tree, error) {
	std, err := os.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	dir, err := handleOf(std)
	if err != nil {
		std.Close()
		return nil, err
	}
	r := &beneathRoot{Root: std, dir: dir}
	if why := dir.probe(); why != nil {
		r.reason = why.Error()
	}
	return r, nil
}

func (r *beneathRoot) backend() (name, reason string) {
	if r.reason != "" {
		return "os", r.reason
	}
	return "openat2", ""
}

func (r *beneathRoot) Close() error {
	r.dir.close()
	return r.Root.Close()
}

func (r *beneathRoot) openRoot(name string) (tree, error) {
	std, err := r.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	dir, err := handleOf(std)
	if err != nil {
		std.Close()
		return nil, err
	}
	return &beneathRoot{std, dir, r.reason}, nil
}

// OpenFile opens by openat2. Directories are opened by os.Root, because only its
// directories do not look up their entries by path. If openat2 fails, os.Root
// returns the error.
func (r *beneathRoot) OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	// os.Root follows links in spite of O_NOFOLLOW, and with O_PATH it does not.
	suits := name != "" && perm&0o777 == perm && flag&(syscall.O_NOFOLLOW|sys.OPath) == 0
	if r.reason == "" && suits {
		fd, err := r.dir.open(name, flag|sys.OLargefile, uint32(perm), beneath)
		if err == syscall.ENOENT {
			return nil, &fs.PathError{Op: "openat", Path: name, Err: err}
		}
		if err == nil {
			if f := osFile(fd, joinName(r.Name(), name), flag); f != nil {
				return f, nil
			}
		}
	}
	return r.Root.OpenFile(name, flag, perm)
}

// joinName joins names as os.Root does for File.Name.
func joinName(dir, name string) string {
	if strings.HasSuffix(dir, "/") {
		return dir + name
	}
	return dir + "/" + name
}

// osFile returns an os.File for a descriptor that was opened with flag, as
// os.OpenFile does. It closes a directory and returns nil.
func osFile(fd int, name string, flag int) *os.File {
	var st syscall.Stat_t
	kind := uint32(syscall.S_IFREG)
	if sys.Fstat(fd, &st) == nil {
		kind = st.Mode & syscall.S_IFMT
	}
	switch {
	case kind == syscall.S_IFDIR:
		_ = sys.NewFD(fd).Close() // nothing was done with it
		return nil
	case kind == syscall.S_IFREG, flag&(syscall.O_NONBLOCK|sys.OPath) != 0:
		return os.NewFile(uintptr(fd), name)
	}
	// Like os, let the netpoller wait for named pipes and whatever else it can,
	// so that they have deadlines.
	if syscall.SetNonblock(fd, true) != nil {
		return os.NewFile(uintptr(fd), name)
	}
	f := os.NewFile(uintptr(fd), name)
	if f.SetDeadline(time.Time{}) != nil { // it cannot wait for this one
		_ = syscall.SetNonblock(fd, false) // which has just been set
	}
	return f
}

// dirHandle is a directory that may be closed while it is in use.
type dirHandle struct {
	f    *os.File
	conn syscall.RawConn
}

// handleOf opens the directory of an os.Root.
func handleOf(r *os.Root) (dirHandle, error) {
	f, err := r.OpenFile(".", sys.OPath|syscall.O_DIRECTORY, 0)
	if err != nil {
		return dirHandle{}, err
	}
	return handle(f)
}

// handle takes ownership of a directory.
func handle(f *os.File) (dirHandle, error) {
	conn, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return dirHandle{}, err
	}
	return dirHandle{f, conn}, nil
}

// close closes the directory when its last user ends, without waiting.
func (d dirHandle) close() { _ = d.f.Close() } // was closed before, at worst

// open opens a name in the directory by openat2. The error is a bare errno, or
// os.ErrClosed.
func (d dirHandle) open(name string, flags int, mode uint32, resolve uint64) (fd int, err error) {
	closed := d.conn.Control(func(dir uintptr) { fd, err = openBeneath(int(dir), name, flags, mode, resolve) })
	if closed != nil {
		return -1, os.ErrClosed
	}
	return fd, err
}

// openBeneath retries on EAGAIN: a rename or mount anywhere on the system makes the
// kernel give up a name that has "..".
func openBeneath(dir int, name string, flags int, mode uint32, resolve uint64) (fd int, err error) {
	const tries = 256
	for range tries {
		fd, err = sys.OpenAt2(dir, name, flags, mode, resolve)
		if err != syscall.EAGAIN {
			break
		}
	}
	return fd, err
}

// probe returns why openat2 cannot be used, nil if it can. It opens the directory
// itself, which exists.
func (d dirHandle) probe() error {
	fd, err := d.open(".", sys.OPath|syscall.O_DIRECTORY, 0, beneath)
	switch err {
	case nil:
		return sys.NewFD(fd).Close()
	case syscall.ENOSYS, syscall.EOPNOTSUPP:
		return fmt.Errorf("openat2 is missing (it needs Linux 5.6) or a seccomp filter hides it: %w", err)
	case syscall.EPERM, syscall.EACCES:
		return fmt.Errorf("openat2 is forbidden, probably by a seccomp filter: allow it there: %w", err)
	case syscall.EINVAL, syscall.E2BIG:
		return fmt.Errorf("openat2 does not support RESOLVE_BENEATH: %w", err)
	}
	return nil // another failure, such as a lack of descriptors, is no reason
}

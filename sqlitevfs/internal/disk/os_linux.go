// SPDX-License-Identifier: MIT

package disk

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/sys"
)

// openFlags rejects symbolic links, and does not wait for the other end of a pipe.
const openFlags = unix.O_NOFOLLOW | unix.O_NONBLOCK

// openDurable prefers O_DIRECT, which avoids the copy to the page cache. File systems that reject
// it still have O_DSYNC.
func openDurable(name string, mode int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, mode|unix.O_DIRECT|unix.O_DSYNC, perm)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		f, err = os.OpenFile(name, mode|unix.O_DSYNC, perm)
	}
	if err != nil {
		return nil, err
	}
	return &osFile{File: f}, nil
}

// syncFile calls fdatasync, which syncs size and data. SQLite on Linux relies on the same.
func syncFile(f *os.File) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var errno error
	if err := c.Control(func(fd uintptr) {
		errno = sys.Fdatasync(int(fd))
	}); err != nil {
		return err
	}
	if errno != nil {
		return &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: errno}
	}
	return nil
}

func syncDir(dir string) error {
	fd, err := again(func() (int, error) { return unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	if _, err := again(func() (int, error) { return 0, unix.Fsync(fd) }); err != nil {
		return &fs.PathError{Op: "sync", Path: dir, Err: err}
	}
	return nil
}

// again repeats a call that a signal interrupted.
func again(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); err != unix.EINTR {
			return n, err
		}
	}
}

// Stat returns the identity of a file by statx(2) with these flags. It does not ask for the
// times of changes: a file whose times were read gets new ones, to the nanosecond, with its next write since
// Linux 6.13. The write then changes the inode, and making it durable takes a third longer.
func Stat(dir int, name string, flags int) (ID, error) {
	id, _, err := stat(dir, name, flags, 0)
	return id, err
}

// stat asks for more than the identity.
func stat(dir int, name string, flags int, more uint32) (ID, *unix.Statx_t, error) {
	var st unix.Statx_t
	if err := sys.Statx(dir, name, flags, unix.STATX_INO|unix.STATX_BTIME|more, &st); err != nil {
		return ID{}, nil, &fs.PathError{Op: "statx", Path: name, Err: err}
	}
	id := ID{Device: unix.Mkdev(st.Dev_major, st.Dev_minor), Inode: st.Ino}
	if st.Mask&unix.STATX_BTIME != 0 {
		id.Born = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return id, &st, nil
}

func state(name string) (State, error) {
	id, st, err := stat(unix.AT_FDCWD, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_SIZE|unix.STATX_CTIME)
	if err != nil {
		return State{}, err
	}
	return State{id, int64(st.Size), st.Ctime.Sec*1e9 + int64(st.Ctime.Nsec)}, nil
}

func lookup(name string) (ID, error) { return Stat(unix.AT_FDCWD, name, unix.AT_SYMLINK_NOFOLLOW) }

func (f *osFile) ID() (id ID, err error) {
	c, err := f.SyscallConn()
	if err != nil {
		return ID{}, err
	}
	if cerr := c.Control(func(fd uintptr) { id, err = Stat(int(fd), "", unix.AT_EMPTY_PATH) }); cerr != nil {
		return ID{}, cerr
	}
	return id, err
}

// TryLock takes an open file description lock and reports whether it did.
func (f *osFile) TryLock(off, n int64) (bool, error) {
	c, err := f.SyscallConn()
	if err != nil {
		return false, err
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: off, Len: n}
	var errno error
	if err := c.Control(func(fd uintptr) {
		for {
			if errno = unix.FcntlFlock(fd, unix.F_OFD_SETLK, &lock); errno != unix.EINTR {
				return
			}
		}
	}); err != nil {
		return false, err
	}
	switch {
	case errno == nil:
		return true, nil
	case errno == unix.EAGAIN || errno == unix.EACCES:
		return false, nil
	}
	return false, &fs.PathError{Op: "lock", Path: f.Name(), Err: errno}
}

func (f *osFile) Times() (written time.Time, mount uint64, err error) {
	st, err := f.Stat()
	if err != nil {
		return time.Time{}, 0, err
	}
	return st.ModTime(), f.mount(), nil
}

// mount returns a hash of the boot of the machine and the mount's number. (Linux 6.8)
func (f *osFile) mount() uint64 {
	c, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	var x unix.Statx_t
	var serr error
	err = c.Control(func(fd uintptr) {
		serr = sys.Statx(int(fd), "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID_UNIQUE, &x)
	})
	boot, berr := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if cmp.Or(err, serr, berr) != nil || x.Mask&unix.STATX_MNT_ID_UNIQUE == 0 {
		return 0
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d", boot, x.Mnt_id)
	return h.Sum64()
}

// SPDX-License-Identifier: MIT

//go:build unix

package sys

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// closeFD does not retry on EINTR: Linux has released the number by then.
func closeFD(fd int) error {
	if err := syscall.Close(fd); err != nil && err != syscall.EINTR {
		return Error("close", err.(syscall.Errno))
	}
	return nil
}

// Dup duplicates a descriptor, with close-on-exec set.
func Dup(fd int) (int, error) {
	if _, errno := fault("dup", 1); errno != 0 {
		return -1, Error("dup", errno)
	}
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, Error("dup", err.(syscall.Errno))
	}
	return n, nil
}

// CloseOnExec makes exec close a descriptor.
func CloseOnExec(fd int) { syscall.CloseOnExec(fd) }

// FileMode returns the st_mode of an open descriptor (fstat(2)), which holds its
// type and permissions, and a number made of its device and inode. Anonymous
// inodes have no type, and all of them have the same number.
func FileMode(fd int) (mode uint32, id uint64, errno syscall.Errno) {
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return 0, 0, err.(syscall.Errno)
	}
	return uint32(st.Mode), uint64(st.Ino) ^ uint64(st.Dev)<<40, 0
}

// Pread is pread(2), retried when a signal interrupts it. The error is a bare
// errno, as os wants it in its errors.
func Pread(fd int, p []byte, off int64) (int, error) {
	n, errno := faultRetry("pread", len(p))
	if errno != 0 {
		return 0, errno
	}
	p = p[:n]
	for {
		n, err := syscall.Pread(fd, p, off)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

// Pwrite is pwrite(2), retried when a signal interrupts it.
func Pwrite(fd int, p []byte, off int64) (int, error) {
	n, errno := faultRetry("pwrite", len(p))
	if errno != 0 {
		return 0, errno
	}
	p = p[:n]
	for {
		n, err := syscall.Pwrite(fd, p, off)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

// TryLock locks a file against other openings of it, in this process and in
// others, until it is closed or [Unlock] (flock(2)). It reports false when another
// opening holds the lock.
func TryLock(f *os.File) (bool, error) {
	err := flock(f, unix.LOCK_EX|unix.LOCK_NB)
	if err == syscall.EWOULDBLOCK {
		return false, nil
	}
	return err == nil, err
}

// Unlock releases the lock of [TryLock], although a child process may hold a copy
// of the descriptor.
func Unlock(f *os.File) error { return flock(f, unix.LOCK_UN) }

func flock(f *os.File, how int) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var lockErr error
	if err := conn.Control(func(fd uintptr) { lockErr = flockFD(int(fd), how) }); err != nil {
		return err
	}
	return lockErr
}

func flockFD(fd, how int) error {
	for {
		if err := unix.Flock(fd, how); err != unix.EINTR {
			return err
		}
	}
}

// Flock is flock(2). mode is 0 for a shared lock, 1 for an exclusive lock, 2 to unlock.
// Without wait the error is EWOULDBLOCK when another opening holds the lock.
func Flock(fd, mode int, wait bool) error {
	if _, errno := faultRetry("flock", 1); errno != 0 {
		return errno
	}
	how := [...]int{unix.LOCK_SH, unix.LOCK_EX, unix.LOCK_UN}
	if mode < 0 || mode >= len(how) {
		return syscall.EINVAL
	}
	if !wait {
		return flockFD(fd, how[mode]|unix.LOCK_NB)
	}
	return flockFD(fd, how[mode])
}

// MapFile maps n bytes of a file from its beginning, for reading, without read-ahead on page faults.
// Memory behind the last page of the file cannot be accessed (SIGBUS). The error is a bare errno.
func MapFile(fd, n int) ([]byte, error) {
	if _, errno := fault("mmap file", 1); errno != 0 {
		return nil, errno
	}
	m, err := unix.Mmap(fd, 0, n, unix.PROT_READ, unix.MAP_SHARED)
	if err == nil {
		_ = unix.Madvise(m, unix.MADV_RANDOM) // without it, faults read more
	}
	return m, err
}

// UnmapFile frees the memory of [MapFile].
func UnmapFile(m []byte) error { return unix.Munmap(m) }

// OpenRead opens a file for reading, as os.Open, but without the netpoller. The caller closes the
// descriptor by CloseFile. The error is a bare errno.
func OpenRead(name string) (int, error) {
	if _, errno := faultRetry("open", 1); errno != 0 {
		return -1, errno
	}
	for {
		fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err != syscall.EINTR {
			return fd, err
		}
	}
}

// CloseFile closes a descriptor of [OpenRead] or [OpenRegular]. The error is a bare errno.
func CloseFile(fd int) error {
	if _, errno := fault("close", 1); errno != 0 {
		_ = syscall.Close(fd)
		return errno
	}
	return syscall.Close(fd)
}

// FileSize returns the size of an open file, 0 if it is not known.
func FileSize(fd int) int64 {
	var st syscall.Stat_t
	if syscall.Fstat(fd, &st) != nil {
		return 0
	}
	return st.Size
}

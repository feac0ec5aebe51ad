// SPDX-License-Identifier: MIT

package sys

import (
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// CopyFileRange copies up to n bytes between two files without a way through
// this process, as copy_file_range(2). The positions of the files stay. It
// returns 0 at the end of the source, and also for files that do not know their
// size, such as those of /proc. Errors are bare errnos; a signal does not end
// it.
func CopyFileRange(dst int, dstOff int64, src int, srcOff int64, n int) (int, error) {
	for {
		if Faulty {
			fewer, errno := faulty("copy_file_range", n)
			if errno == syscall.EINTR {
				continue
			} else if errno != 0 {
				return 0, errno
			}
			n = fewer
		}
		m, err := unix.CopyFileRange(src, &srcOff, dst, &dstOff, n, 0)
		if err != syscall.EINTR {
			return max(m, 0), err
		}
	}
}

// CloneRange has the destination share the blocks of the source (FICLONERANGE),
// on file systems that can: EOPNOTSUPP, EXDEV or EINVAL elsewhere.
func CloneRange(dst int, dstOff int64, src int, srcOff, n int64) error {
	if Faulty {
		if _, errno := faulty("clone", 1); errno != 0 {
			return errno
		}
	}
	return unix.IoctlFileCloneRange(dst, &unix.FileCloneRange{
		Src_fd: int64(src), Src_offset: uint64(srcOff), Src_length: uint64(n), Dest_offset: uint64(dstOff),
	})
}

// Splice moves up to n bytes from or to a pipe, as splice(2). The offset of
// the side that is not a pipe is given; that of the pipe is negative. With
// nonblock it answers EAGAIN where it would wait for the pipe. Errors are bare
// errnos; a signal does not end it.
func Splice(dst int, dstOff int64, src int, srcOff int64, n int, nonblock bool) (int, error) {
	flags := unix.SPLICE_F_MOVE
	if nonblock {
		flags |= unix.SPLICE_F_NONBLOCK
	}
	for {
		if Faulty {
			fewer, errno := faulty("splice", n)
			if errno == syscall.EINTR {
				continue
			} else if errno != 0 {
				return 0, errno
			}
			n = fewer
		}
		m, err := unix.Splice(src, notPipe(&srcOff), dst, notPipe(&dstOff), n, flags)
		if err != syscall.EINTR {
			return int(max(m, 0)), err
		}
	}
}

func notPipe(off *int64) *int64 {
	if *off < 0 {
		return nil
	}
	return off
}

// Reopen opens the file of a descriptor again with the same access, so that it
// has a position of its own and goes through the page cache.
func Reopen(fd int) (*FD, error) {
	if Faulty {
		if _, errno := faulty("open", 1); errno != 0 {
			return nil, errno
		}
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return nil, err
	}
	flags = flags&(unix.O_ACCMODE|unix.O_SYNC|unix.O_DSYNC) | unix.O_CLOEXEC
	again, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), flags, 0)
	if err != nil {
		return nil, err
	}
	return NewFD(again), nil
}

// PunchHole makes n bytes read as zeros that take no space. The size of the
// file stays.
func PunchHole(fd int, off, n int64) error {
	return Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
}

// NextData returns where the next data of a file begin and end, from off on;
// what is between is a hole. It moves the position of the descriptor. ENXIO
// says that nothing but a hole follows, or nothing at all.
func NextData(fd int, off int64) (start, end int64, err error) {
	if Faulty {
		if _, errno := faulty("lseek", 1); errno != 0 {
			return 0, 0, errno
		}
	}
	if start, err = unix.Seek(fd, off, unix.SEEK_DATA); err != nil {
		return 0, 0, err
	}
	end, err = unix.Seek(fd, start, unix.SEEK_HOLE)
	return start, end, err
}

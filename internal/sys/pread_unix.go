// SPDX-License-Identifier: MIT

//go:build unix

package sys

import "syscall"

// Pread is pread(2), retried when a signal interrupts it. The error is a bare
// errno, as os wants it in its errors.
func Pread(fd int, p []byte, off int64) (int, error) {
	for {
		if Faulty {
			n, errno := faulty("pread", len(p))
			if errno == syscall.EINTR {
				continue
			} else if errno != 0 {
				return 0, errno
			}
			p = p[:n]
		}
		n, err := syscall.Pread(fd, p, off)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

// Pwrite is pwrite(2), retried when a signal interrupts it.
func Pwrite(fd int, p []byte, off int64) (int, error) {
	for {
		if Faulty {
			n, errno := faulty("pwrite", len(p))
			if errno == syscall.EINTR {
				continue
			} else if errno != 0 {
				return 0, errno
			}
			p = p[:n]
		}
		n, err := syscall.Pwrite(fd, p, off)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

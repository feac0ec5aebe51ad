// SPDX-License-Identifier: MIT

package sys

import "syscall"

// HaveFdatasync reports whether [Fdatasync] works.
const HaveFdatasync = true

// Fdatasync makes the data of a file durable and what of its metadata is needed
// to read them back, as fdatasync(2). A signal does not end it. After any other
// error the data must be taken for lost: the kernel forgets which pages failed,
// and a second call would answer success. The error is a bare errno, as os wants
// it in its errors.
func Fdatasync(fd int) error {
	for {
		if Faulty {
			if _, errno := faulty("fdatasync", 1); errno == syscall.EINTR {
				continue
			} else if errno != 0 {
				return errno
			}
		}
		if err := syscall.Fdatasync(fd); err != syscall.EINTR {
			return err
		}
	}
}

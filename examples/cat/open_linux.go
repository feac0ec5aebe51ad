// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"os"
	"syscall"

	"github.com/ringside-io/ringside/ufile"
)

// open opens a file, past the page cache where that is wanted and its file system can.
func open(name string, direct bool) (*ufile.File, error) {
	if direct {
		f, err := ufile.OpenFile(name, os.O_RDONLY|syscall.O_DIRECT, 0)
		if !errors.Is(err, syscall.EINVAL) {
			return f, err
		}
	}
	return ufile.Open(name)
}

// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"os"
	"syscall"

	"github.com/ringside-io/ringside/ufile"
)

// open opens a file. With direct it bypasses the page cache if the file system supports
// that.
func open(name string, direct bool) (*ufile.File, error) {
	if direct {
		f, err := ufile.OpenFile(name, os.O_RDONLY|syscall.O_DIRECT, 0)
		if !errors.Is(err, syscall.EINVAL) {
			return f, err
		}
	}
	return ufile.Open(name)
}

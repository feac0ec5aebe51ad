// SPDX-License-Identifier: MIT

//go:build !unix || solaris || aix

package backup

import (
	"errors"
	"io"
)

// lockFile returns an error: there is no such lock.
func lockFile(string) (io.Closer, error) { return nil, errors.ErrUnsupported }

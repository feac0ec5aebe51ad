// SPDX-License-Identifier: MIT

//go:build !unix || solaris || aix

package backup

import (
	"errors"
	"io"
)

// lockDir returns an error: there is no such lock.
func lockDir(string) (io.Closer, error) { return nil, errors.ErrUnsupported }

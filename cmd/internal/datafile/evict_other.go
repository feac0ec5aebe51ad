// SPDX-License-Identifier: MIT

//go:build !linux

package datafile

import (
	"fmt"
	"os"
)

// ProbeEvict returns an error that matches [ErrCached]: only Linux evicts files on request.
func ProbeEvict(string) error { return fmt.Errorf("%w: the system cannot evict it", ErrCached) }

// dropCache does nothing: there is no portable way.
func dropCache(*os.File) error { return nil }

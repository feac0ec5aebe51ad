// SPDX-License-Identifier: MIT

//go:build !(linux || darwin)

package datafile

import "errors"

// freeSpace is not known here.
func freeSpace(string) (int64, error) { return 0, errors.ErrUnsupported }

// isNoSpace is not known here: a failed write ends the run.
func isNoSpace(error) bool { return false }

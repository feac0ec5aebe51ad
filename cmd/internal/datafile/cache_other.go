// SPDX-License-Identifier: MIT

//go:build !linux

package datafile

import "os"

// dropCache has no portable form.
func dropCache(*os.File) error { return nil }

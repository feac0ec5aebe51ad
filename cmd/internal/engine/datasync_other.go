// SPDX-License-Identifier: MIT

//go:build !linux

package engine

import "os"

// datasync makes the file durable; here that is what [os.File.Sync] does.
func datasync(f *os.File, _ uintptr) error { return f.Sync() }

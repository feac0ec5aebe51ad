// SPDX-License-Identifier: MIT

//go:build !unix

package procstat

// Descriptors returns 0: there is no limit here.
func Descriptors() int { return 0 }

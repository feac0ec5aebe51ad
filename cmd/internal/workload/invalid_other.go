// SPDX-License-Identifier: MIT

//go:build !unix

package workload

// isInvalid is not called on systems without O_DIRECT.
func isInvalid(error) bool { return false }

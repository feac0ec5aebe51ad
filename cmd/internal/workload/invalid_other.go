// SPDX-License-Identifier: MIT

//go:build !unix

package workload

// isInvalid is never asked where there is no O_DIRECT.
func isInvalid(error) bool { return false }

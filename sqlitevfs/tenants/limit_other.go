// SPDX-License-Identifier: MIT

//go:build !unix

package tenants

// limitOfDescriptors returns how many files the process may have open.
func limitOfDescriptors() int { return 16384 }

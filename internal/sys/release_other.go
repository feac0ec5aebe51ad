// SPDX-License-Identifier: MIT

//go:build !linux

package sys

// KernelRelease returns "": there is no Linux kernel.
func KernelRelease() string { return "" }

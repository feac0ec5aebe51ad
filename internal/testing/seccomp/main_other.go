// SPDX-License-Identifier: MIT

//go:build !linux

package main

import "os"

func main() {
	os.Stderr.WriteString("seccomp: only Linux has io_uring\n")
	os.Exit(2)
}

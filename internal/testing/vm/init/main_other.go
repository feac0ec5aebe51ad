// SPDX-License-Identifier: MIT

//go:build !linux

package main

import "os"

func main() {
	os.Stderr.WriteString("init: runs as the first process of a Linux machine only\n")
	os.Exit(2)
}

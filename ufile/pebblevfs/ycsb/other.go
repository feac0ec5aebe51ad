// SPDX-License-Identifier: MIT

//go:build !linux

// Ycsb runs on Linux only.
package main

import "log"

func main() { log.Fatal("ycsb: runs on Linux only: pebblevfs is vfs.Default elsewhere") }

// SPDX-License-Identifier: MIT

//go:build !linux

package main

import "github.com/ringside-io/ringside/ufile"

// open opens a file; only Linux has O_DIRECT.
func open(name string, _ bool) (*ufile.File, error) { return ufile.Open(name) }

// SPDX-License-Identifier: MIT

//go:build !linux

// Package pebblevfs is vfs.Default on this system.
package pebblevfs

import (
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ringside-io/ringside/ufile"
)

// New returns vfs.Default, because package ufile has no faster path on this system.
func New(*ufile.System) vfs.FS { return vfs.Default }

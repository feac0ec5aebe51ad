// SPDX-License-Identifier: MIT

// Package fastdev makes a storage whose speed only the processor bounds: XFS, or ext4 where there
// is no mkfs.xfs, on a loop device over a file in memory (tmpfs).
//
// Nothing of it can be left behind. The file in memory has no name, the loop device is told to let
// go of it with its last user, and the file system is mounted without a place in the directory
// tree: all three live as long as the descriptors of the process that made them, and of its
// children. When that process ends, however it ends, the kernel takes everything apart.
package fastdev

import "errors"

// ErrUnavailable is matched by the error of [Make] where no such device can be had; the error says
// what is missing and what to do about it.
var ErrUnavailable = errors.New("no fast device")

// Overhead is how many bytes of a device the file system may take for itself, to be added to the size for
// [Make] beyond the files to hold.
const Overhead = 192 << 20

// minSize is the smallest device on which XFS can be made.
const minSize = 512 << 20

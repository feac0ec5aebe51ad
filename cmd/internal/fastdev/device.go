// SPDX-License-Identifier: MIT

// Package fastdev creates a storage whose speed is limited only by the processor: XFS, or ext4 if
// there is no mkfs.xfs, on a loop device over a file in memory (tmpfs).
//
// Nothing of it can be left behind. The file in memory has no name, the loop device is detached
// with its last user, and the file system is mounted without a place in the directory tree. All
// three live as long as descriptors of the process that created them, and of its children. When the
// process ends, even if it is killed, the kernel removes everything.
package fastdev

import "errors"

// ErrUnavailable is matched by the error of [Make] if such a device is not possible. The error
// names the missing requirement and its remedy.
var ErrUnavailable = errors.New("no fast device")

// Overhead is the number of bytes that the file system may need for itself. Add it to the size for
// [Make].
const Overhead = 192 << 20

// minSize is the smallest size of a device for XFS.
const minSize = 512 << 20

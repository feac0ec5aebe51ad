// SPDX-License-Identifier: MIT

package fastdev

import "errors"

// ErrUnavailable is matched by the error of [Make] where no such device can be had; the error says
// what is missing and what to do about it.
var ErrUnavailable = errors.New("no fast device")

// Overhead is how many bytes of a device the file system may take for itself: what is asked of
// [Make] beyond the files to hold.
const Overhead = 192 << 20

// minSize is the smallest device on which XFS can be made.
const minSize = 512 << 20

// SPDX-License-Identifier: MIT

// Package wire is what the two halves of a kernel lane agree on: the plan the
// host puts into the initramfs, and the markers the guest writes between the
// output of the programs on its second serial port.
package wire

// SPDX-License-Identifier: MIT

// Package wire is the protocol between the host and the guest of a kernel lane: the plan
// that the host puts into the initramfs, and the markers that the guest writes between
// the output of the programs on its second serial port.
package wire

// SPDX-License-Identifier: MIT

package unet

import "fmt"

// Mode is how a [System] moves data.
type Mode int

const (
	// ModeAuto takes rings where io_uring can be used, plain calls where it
	// cannot, and package net's own connections on other systems than Linux.
	ModeAuto Mode = iota
	// ModeRing insists on rings.
	ModeRing
	// ModePlain is the design of ModeRing with a plain system call in the
	// place of each operation of a ring. It needs no io_uring, and has nearly
	// all of the gain.
	ModePlain
	// ModeNet hands out package net's own connections.
	ModeNet
)

// String returns auto, ring, plain or net.
func (m Mode) String() string {
	switch m {
	case ModeAuto:
		return "auto"
	case ModeRing:
		return "ring"
	case ModePlain:
		return "plain"
	case ModeNet:
		return "net"
	}
	return fmt.Sprintf("Mode(%d)", int(m))
}

// SPDX-License-Identifier: MIT

package unet

import "fmt"

// Mode says how a [System] moves data.
type Mode int

const (
	// ModeAuto takes rings where io_uring can be used, and package net's own
	// connections where it cannot.
	ModeAuto Mode = iota
	// ModeRing insists on rings.
	ModeRing
	// ModePlain is the design of ModeRing with a plain system call in the
	// place of each operation of a ring. It needs no io_uring, and shows how
	// much of a difference the rings make.
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

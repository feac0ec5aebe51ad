// SPDX-License-Identifier: MIT

package echo

import (
	"github.com/ringside-io/ringside/unet"
)

// startConn starts our net.Listener, used as package net's.
func startConn(s Setup) (Server, error) {
	ln, err := unet.Listen("tcp", loopback)
	if err != nil {
		return nil, err
	}
	name, reason := unet.Backend()
	return startGo(s, ln, name, reason), nil
}

// startPlain starts the control: the same design with plain calls in the place of the ring.
func startPlain(s Setup) (Server, error) {
	system, err := unet.NewSystem(unet.Options{Mode: unet.ModePlain})
	if err != nil {
		return nil, err
	}
	ln, err := system.Listen("tcp", loopback)
	if err != nil {
		return nil, err
	}
	name, reason := system.Backend()
	return startGo(s, ln, name, reason), nil
}

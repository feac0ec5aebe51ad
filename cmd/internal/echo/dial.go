// SPDX-License-Identifier: MIT

package echo

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/ringside-io/ringside/unet"
)

// dialFunc is net.Dial, or the same function of another package.
type dialFunc = func(network, address string) (net.Conn, error)

// dialerOf returns the function with which an engine dials.
func dialerOf(engine string) (dial dialFunc, backend, reason string, err error) {
	switch engine {
	case NameStd:
		return net.Dial, "net", "", nil
	case NameConn:
		backend, reason = unet.Backend()
		return unet.Dial, backend, reason, nil
	case NamePlain:
		system, err := unet.NewSystem(unet.Options{Mode: unet.ModePlain})
		if err != nil {
			return nil, "", "", err
		}
		backend, reason = system.Backend()
		return system.Dial, backend, reason, nil
	}
	return nil, "", "", fmt.Errorf("engine %s does not dial", engine)
}

// startDial starts a server that calls another one for each message. Both accept with package net,
// so that the engine has no socket that stays open.
func startDial(s Setup) (Server, error) {
	dial, name, reason, err := dialerOf(s.Engine)
	if err != nil {
		return nil, err
	}
	called, err := net.Listen("tcp", loopback)
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", loopback)
	if err != nil {
		return nil, errors.Join(err, called.Close())
	}
	go serve(called, Setup{})
	go func() {
		defer called.Close()
		acceptAll(ln, func(c net.Conn) { serveCalls(c, s.Dial, dial, called.Addr().String()) })
	}()
	return &goServer{ln, name, reason}, nil
}

// serveCalls answers each message of size bytes with the echo of the server at addr. After an error
// it closes the connection.
func serveCalls(c net.Conn, size int, dial dialFunc, addr string) {
	defer c.Close()
	for p := make([]byte, size); ; {
		if _, err := io.ReadFull(c, p); err != nil {
			return
		}
		if err := call(dial, addr, p); err != nil {
			fmt.Fprintln(os.Stderr, err) // The parent reports it when the round fails.
			return
		}
		if _, err := c.Write(p); err != nil {
			return
		}
	}
}

// call sends a message over a new connection and replaces it by the answer. The connection ends
// with a reset, so that no port stays in TIME_WAIT.
func call(dial dialFunc, addr string, p []byte) (err error) {
	c, err := dial("tcp", addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.(interface{ SetLinger(seconds int) error }).SetLinger(0); err != nil {
		return err
	}
	if _, err := c.Write(p); err != nil {
		return err
	}
	_, err = io.ReadFull(c, p)
	return err
}

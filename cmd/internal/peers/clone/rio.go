// SPDX-License-Identifier: MIT

//go:build ignore

package main

import (
	"fmt"
	"net"
	"os"

	"github.com/brickingsoft/rio"
)

func main() {
	ln, err := rio.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			go echo(c)
		}
	}()
	talk(ln.Addr().String(), "io_uring")
}

func echo(c net.Conn) {
	defer c.Close()
	buf := make([]byte, 4<<10)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}

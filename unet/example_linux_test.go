// SPDX-License-Identifier: MIT

package unet_test

import (
	"fmt"
	"log"
	"net"

	"github.com/ringside-io/ringside/unet"
)

// Writev takes the place of net.Buffers.WriteTo.
func ExampleTCPConn_Writev() {
	writeAll := func(c net.Conn, bufs net.Buffers) (int64, error) {
		if v, ok := c.(interface {
			Writev(*net.Buffers) (int64, error)
		}); ok {
			return v.Writev(&bufs)
		}
		return bufs.WriteTo(c) // package net's own
	}
	l, err := unet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	c, err := unet.Dial("tcp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fmt.Println(writeAll(c, net.Buffers{[]byte("head "), []byte("body")}))
	// Output: 9 <nil>
}

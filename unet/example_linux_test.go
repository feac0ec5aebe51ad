// SPDX-License-Identifier: MIT

package unet_test

import (
	"bytes"
	"fmt"
	"log"
	"net"

	"github.com/ringside-io/ringside/unet"
)

// Writev replaces net.Buffers.WriteTo.
func ExampleTCPConn_Writev() {
	writeAll := func(c net.Conn, bufs net.Buffers) (int64, error) {
		if v, ok := c.(interface {
			Writev(*net.Buffers) (int64, error)
		}); ok {
			return v.Writev(&bufs)
		}
		return bufs.WriteTo(c) // a connection of package net
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

// A long message is sent as datagrams of one size in one call, and received as one in one
// call.
func ExampleUDPConn_SetGRO() {
	in, err := unet.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		log.Fatal(err)
	}
	defer in.Close()
	if err := in.SetGRO(true); err != nil {
		log.Fatal(err)
	}
	out, err := unet.DialUDP("udp4", nil, in.LocalAddr().(*net.UDPAddr))
	if err != nil {
		log.Fatal(err)
	}
	defer out.Close()
	data := bytes.Repeat([]byte("x"), 10_000)
	if _, err := out.WriteBatch([]unet.Packet{{Data: data, Segment: 1200}}); err != nil {
		log.Fatal(err)
	}
	total := 0
	for packets := []unet.Packet{{Data: make([]byte, 1<<16)}}; total < len(data); {
		if _, err := in.ReadBatch(packets); err != nil {
			log.Fatal(err)
		}
		total += packets[0].N // datagrams of packets[0].Segment bytes, or a single one if that is 0
	}
	fmt.Println(total)
	// Output: 10000
}

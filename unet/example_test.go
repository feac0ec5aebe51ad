// SPDX-License-Identifier: MIT

package unet_test

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"

	"github.com/ringside-io/ringside/unet"
)

func Example() {
	l, err := unet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.Copy(c, c)
	}()

	c, err := unet.Dial("tcp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintln(c, "hello")
	line, err := bufio.NewReader(c).ReadString('\n')
	fmt.Print(line, err)
	// Output:
	// hello
	// <nil>
}

// A server and a client of net/http use the listener and the dialer unchanged.
func Example_http() {
	l, err := unet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "served")
	})}
	go server.Serve(l)
	defer server.Close()

	transport := &http.Transport{DialContext: (&unet.Dialer{}).DialContext}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get("http://" + l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Println(string(body), err)
	// Output: served <nil>
}

// A batch of datagrams takes one system call. NewBatchConn makes the same program work
// without batches, with one call for each datagram.
func ExampleBatchConn() {
	pc, err := unet.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer pc.Close()
	c := unet.NewBatchConn(pc)
	to := c.LocalAddr().(*net.UDPAddr).AddrPort()
	n, err := c.WriteBatch([]unet.Packet{{Data: []byte("one"), Addr: to}, {Data: []byte("two"), Addr: to}})
	fmt.Println(n, err)

	packets := make([]unet.Packet, 8)
	for i := range packets {
		packets[i].Data = make([]byte, 1500)
	}
	for got := 0; got < 2; {
		n, err := c.ReadBatch(packets)
		if err != nil {
			log.Fatal(err)
		}
		for _, p := range packets[:n] {
			fmt.Printf("%s, from %v: %v\n", p.Data[:p.N], p.Addr.Addr().Unmap(), p.Addr.Port() == to.Port())
		}
		got += n
	}
	// Output:
	// 2 <nil>
	// one, from 127.0.0.1: true
	// two, from 127.0.0.1: true
}

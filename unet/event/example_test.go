// SPDX-License-Identifier: MIT

package event_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"

	"github.com/ringside-io/ringside/unet/event"
)

// A server that replies in capitals.
func Example() {
	s, err := event.Listen("tcp", "127.0.0.1:0", event.Handler{
		OnData: func(c *event.Conn, data []byte) {
			_, _ = c.Write(bytes.ToUpper(data)) // Write copies
		},
	}, event.Options{})
	if err != nil {
		log.Fatal(err)
	}

	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	_, _ = c.Write([]byte("hello"))
	_ = c.(*net.TCPConn).CloseWrite()
	answer, err := io.ReadAll(c)
	fmt.Println(string(answer), err)
	_ = c.Close()

	fmt.Println(s.Shutdown(context.Background()))
	// Output:
	// HELLO <nil>
	// <nil>
}

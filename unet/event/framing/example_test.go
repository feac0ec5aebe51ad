// SPDX-License-Identifier: MIT

package framing_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"

	"github.com/ringside-io/ringside/unet/event"
	"github.com/ringside-io/ringside/unet/event/framing"
)

// A server of lines: the reply to each line is its length.
func ExampleLines() {
	handler := event.Handler{
		OnOpen: func(c *event.Conn) { c.SetValue(framing.Lines(1 << 10)) },
		OnData: func(c *event.Conn, data []byte) {
			var out []byte
			err := c.Value().(*framing.Frames).Feed(data, func(line []byte) error {
				out = fmt.Appendln(out, len(line))
				return nil
			})
			_, _ = c.Write(out) // one Write for all replies
			if err != nil {
				_ = c.Close()
			}
		},
	}
	s, err := event.Listen("tcp", "127.0.0.1:0", handler, event.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "hello\nwor")
	_, _ = io.WriteString(c, "ld!\r\n")
	r := bufio.NewScanner(c)
	for range 2 {
		r.Scan()
		fmt.Println(r.Text())
	}
	// Output:
	// 5
	// 6
}

// Frames with a length prefix of two bytes, as in DNS over TCP.
func ExampleLengthPrefix() {
	stream, _ := framing.AppendPrefixed(nil, 2, binary.BigEndian, []byte("first"))
	stream, _ = framing.AppendPrefixed(stream, 2, binary.BigEndian, []byte("second"))
	f := framing.LengthPrefix(2, binary.BigEndian, 512)
	for _, piece := range [][]byte{stream[:3], stream[3:]} { // as they arrive
		err := f.Feed(piece, func(frame []byte) error {
			fmt.Printf("%s\n", frame)
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// first
	// second
}

// A server of HTTP/1.1 on event loops.
func ExampleHTTP() {
	handler := framing.HTTP(func(dst []byte, r *framing.Request) []byte {
		if string(r.Target) != "/" {
			return r.AppendResponse(dst, http.StatusNotFound, nil)
		}
		return r.AppendResponse(dst, http.StatusOK, []byte("hello\n"), "Content-Type", "text/plain")
	}, framing.HTTPOptions{})
	s, err := event.Listen("tcp", "127.0.0.1:0", handler, event.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	res, err := http.Get("http://" + s.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	fmt.Print(res.Status, " ", string(body))
	// Output: 200 OK hello
}

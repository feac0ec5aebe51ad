// SPDX-License-Identifier: MIT

package unet_test

import (
	"bufio"
	"fmt"
	"io"
	"log"
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

// A server and a client of net/http take the listener and the dialer as they
// are.
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

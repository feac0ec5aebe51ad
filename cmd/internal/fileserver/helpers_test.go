// SPDX-License-Identifier: MIT

package fileserver

import (
	"bufio"
	"io"
	"log"
	"net"
	"testing"
	"time"
)

var quiet = log.New(io.Discard, "", 0)

// patience bounds every wait.
const patience = time.Minute

func newReader(r io.Reader) *bufio.Reader { return bufio.NewReader(r) }

// raw sends bytes on a new connection and returns the whole response.
func raw(t *testing.T, addr, request string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	_ = c.(*net.TCPConn).CloseWrite()
	b, err := io.ReadAll(c)
	if err != nil {
		t.Logf("%q: %v", request[:min(len(request), 60)], err)
	}
	return string(b)
}

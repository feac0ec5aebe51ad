// SPDX-License-Identifier: MIT

package event

import (
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// The ways in which a peer ends a connection.
const (
	aborts = iota
	closes
	halfCloses
)

// TestEndAfterData sends pieces around 32 receive buffers, the number after which the kernel
// queues a multishot receive again, and ends the connection in each way: before it is
// accepted, while a receive is armed, and while receives are cancelled and armed again.
// OnClose must be called for each connection.
// Promise: unet/event/every-end
func TestEndAfterData(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		if o.Loops > 1 {
			t.Skip("the test holds one loop")
		}
		for _, network := range []string{"tcp", "unix"} {
			for _, timing := range []string{"unaccepted", "armed", "cancelled"} {
				t.Run(network+"/"+timing, func(t *testing.T) { testEnds(t, network, timing, o) })
			}
		}
	})
}

func testEnds(t *testing.T, network, timing string, o Options) {
	o.Loops, o.BufferSize = 1, 64
	var opened, closed, received atomic.Int64
	address := "127.0.0.1:0"
	if network == "unix" {
		address = socketPath(t)
	}
	hold := make(chan struct{})
	s := startOn(t, network, address, Handler{
		OnOpen: func(c *Conn) { opened.Add(1) },
		OnData: func(c *Conn, p []byte) {
			if p[0] == 'h' {
				<-hold
				return
			}
			received.Add(int64(len(p)))
			if timing == "cancelled" {
				c.PauseRead()
				c.Post(c.ResumeRead)
			}
		},
		OnClose: func(*Conn, error) { closed.Add(1) },
	}, o)
	holder := dial(t, s)
	var clients []net.Conn
	var ends []func()
	want := int64(0)
	for _, n := range []int{0, 1, 31, 32, 33, 34, 64, 65, 66, 100, 200} {
		for _, how := range []int{aborts, closes, halfCloses} {
			ends = append(ends, func() {
				c := clients[0]
				clients = clients[1:]
				if _, err := c.Write(make([]byte, n*o.BufferSize)); err != nil {
					t.Error(err)
				}
				if how != aborts || network == "unix" {
					want += int64(n * o.BufferSize)
				}
				endBy(c, how)
			})
		}
	}
	connect := func() {
		for range ends {
			clients = append(clients, dial(t, s))
		}
	}
	if timing != "unaccepted" {
		connect()
		await(t, "all are open", func() bool { return opened.Load() == int64(1+len(ends)) })
	}
	if _, err := holder.Write([]byte("h")); err != nil {
		t.Fatal(err)
	}
	if timing == "unaccepted" {
		connect()
	}
	for _, end := range ends {
		end()
	}
	close(hold)
	for limit := time.Now().Add(testPatience); closed.Load() < int64(len(ends)); {
		if time.Now().After(limit) {
			t.Fatalf("OnClose came for %d of %d connections\n%s", closed.Load(), len(ends), ringInfo(t))
		}
		time.Sleep(100 * time.Microsecond)
	}
	if got := received.Load(); got < want {
		t.Errorf("%d of %d bytes before an orderly end were received", got, want)
	}
}

// endBy ends a connection.
func endBy(c net.Conn, how int) {
	switch t, tcp := c.(*net.TCPConn); {
	case how == halfCloses:
		_ = c.(interface{ CloseWrite() error }).CloseWrite()
		return
	case how == aborts && tcp:
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

// ringInfo returns what the kernel says of the rings of the process.
func ringInfo(t *testing.T) string {
	var b strings.Builder
	for fd := range ringtest.Descriptors(t, "[io_uring]") {
		text, _ := os.ReadFile("/proc/self/fdinfo/" + fd)
		fmt.Fprintf(&b, "%s:\n%s", fd, text)
	}
	return b.String()
}

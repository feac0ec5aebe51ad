// SPDX-License-Identifier: MIT

package server

import (
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestSmuggling sends what two servers in a row could understand differently, with
// another request behind it: there is one answer, a refusal, and the end.
// Promise: examples/request-servers-could
func TestSmuggling(t *testing.T) {
	const hidden = "GET /large HTTP/1.1\r\nHost: a\r\n\r\n"
	overBackends(t, time.Minute, func(t *testing.T, s *Server) {
		for fields, code := range map[string]int{
			"Content-Length: 3\r\nContent-Length: 3\r\n":              400,
			"Content-Length: 0\r\nContent-Length: 35\r\n":             400,
			"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n":     400,
			"Transfer-Encoding: chunked\r\nContent-Length: 35\r\n":    400,
			"Transfer-Encoding: chunked\r\n":                          411,
			"Transfer-Encoding: \x0bchunked\r\n":                      400,
			"Transfer-Encoding : chunked\r\n":                         400,
			"Content-Length : 35\r\n":                                 400,
			"Content-Length: -1\r\n":                                  400,
			"Content-Length: +35\r\n":                                 400,
			"Content-Length: 35, 35\r\n":                              400,
			"A: b\r\n Content-Length: 35\r\n":                         400,
			"A: b\nContent-Length: 35\r\n":                            400,
			"A: b\rContent-Length: 35\r\n":                            400,
			"A: b\n\n":                                                400,
			"Host: b\r\n":                                             400,
			"A" + strings.Repeat("a", maxHead) + ": b\r\n":            431,
			strings.Repeat("A: b\r\n", maxHead/6) + "\r\n":            431,
			"Content-Length: 99999999999999999999\r\n":                413,
			"Content-Length: 18446744073709551651\r\n" /* 35+2^64 */ : 413,
		} {
			c := dial(t, s)
			var wg sync.WaitGroup
			wg.Go(func() {
				_, _ = io.WriteString(c.TCPConn, "POST / HTTP/1.1\r\nHost: a\r\n"+fields+"\r\n"+hidden)
				_ = c.CloseWrite()
			})
			if r := c.answer(code, nil); !r.Close {
				t.Errorf("%.40q: the connection is not said to be closed", fields)
			}
			c.ended()
			wg.Wait()
		}
	})
}

// TestTrickle has peers that send a byte now and then: they keep no connection by
// that, neither in a head nor in a body.
// Promise: examples/peer-cannot-hold
func TestTrickle(t *testing.T) {
	overBackends(t, 50*time.Millisecond, func(t *testing.T, s *Server) {
		for _, in := range []string{
			"GET / HTTP/1.1\r\nA: ",
			"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n",
		} {
			c := dial(t, s)
			over := make(chan error, 1)
			go func() {
				_, err := io.Copy(io.Discard, c.r)
				over <- err
			}()
			_, _ = io.WriteString(c.TCPConn, in) // slow machines may be late
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for ended := false; !ended; {
				select {
				case err := <-over:
					ended = true
					if errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("%q: the connection goes on", in)
					}
				case <-tick.C:
					_, _ = io.WriteString(c.TCPConn, "x") // fails once the server has closed
				}
			}
		}
	})
}

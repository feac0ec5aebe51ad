// SPDX-License-Identifier: MIT

//go:build linux

package loadgen

import (
	"context"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// server runs f on each connection to a port of the loopback.
func server(t *testing.T, f func(c net.Conn)) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				f(c)
			}()
		}
	}()
	return ln.Addr().String()
}

func echo(c net.Conn) { _, _ = io.Copy(c, c) }

func job(addr string) Job {
	return Job{
		Network: "tcp", Addr: addr, Connections: 5, Size: 100_000, Pid: os.Getpid(),
		Warm: 5 * time.Millisecond, Measure: 50 * time.Millisecond,
	}
}

func TestRun(t *testing.T) {
	for i, size := range []int{1, 128, 100_000, 1, 128, 100_000} {
		var marks []bool
		j := job(server(t, echo))
		j.Size, j.Epoll = size, i >= 3
		r, err := Run(t.Context(), j, func(begin bool) { marks = append(marks, begin) })
		if err != nil {
			t.Fatal(err)
		}
		if r.Ops == 0 || r.Elapsed < j.Measure || r.CPU <= 0 || r.P50 <= 0 || r.P50 > r.P99 || r.P99 > r.Max+r.Max/50 {
			t.Errorf("%+v", r)
		}
		if len(marks) != 2 || !marks[0] || marks[1] {
			t.Errorf("marks %v", marks)
		}
	}
}

func TestRunReportsWrongServers(t *testing.T) {
	for says, f := range map[string]func(c net.Conn){
		"changed": func(c net.Conn) {
			p := make([]byte, 1000)
			for {
				n, err := c.Read(p)
				if err != nil {
					return
				}
				p[0]++
				_, _ = c.Write(p[:n])
			}
		},
		"closed": func(c net.Conn) { _, _ = c.Read(make([]byte, 10)) },
		"more":   func(c net.Conn) { _, _ = c.Write(make([]byte, 300_000)); echo(c) },
	} {
		j := job(server(t, f))
		j.Size = 128
		j.Epoll = !j.Epoll
		_, err := Run(t.Context(), j, func(bool) {})
		if err == nil || !strings.Contains(err.Error(), says) && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%s: %v", says, err)
		}
	}
	if _, err := Run(t.Context(), Job{}, nil); err == nil {
		t.Error("an empty job is accepted")
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	j := job(server(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })) // never answers
	j.Warm = time.Minute
	if _, err := Run(ctx, j, func(bool) {}); err == nil {
		t.Error("no error")
	}
}

// SPDX-License-Identifier: MIT

//go:build linux

package loadgen

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

// server runs f on each connection to a loopback port.
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

// measured runs j, with windows twice as long while nothing happens in them, as on a busy machine.
func measured(t *testing.T, j Job, mark func(begin bool)) (Result, error) {
	t.Helper()
	for ; ; j.Measure, j.Count = 2*j.Measure, 2*j.Count {
		r, err := Run(t.Context(), j, mark)
		some := r.Ops > 0 && (j.Count == 0 || r.Uncounted != "" || r.Counted > 0)
		if err != nil || some || j.Measure > 5*time.Second {
			return r, err
		}
	}
}

func TestRun(t *testing.T) {
	for i, size := range []int{1, 128, 100_000, 1, 128, 100_000} {
		var marks []bool
		j := job(server(t, echo))
		j.Size, j.Epoll = size, i >= 3
		r, err := measured(t, j, func(begin bool) {
			if begin {
				marks = nil // of an earlier window
			}
			marks = append(marks, begin)
		})
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

func TestRunOverHTTP(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("hello"))
	}))
	defer srv.Close()
	for _, epoll := range []bool{false, true} {
		j := job(srv.Listener.Addr().String())
		j.HTTP, j.Size, j.Epoll = true, 0, epoll
		r, err := measured(t, j, func(bool) {})
		if err != nil || r.Ops == 0 {
			t.Errorf("epoll %v: %+v, %v", epoll, r, err)
		}
	}
	j := job(server(t, func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n") }))
	j.HTTP = true
	if _, err := Run(t.Context(), j, func(bool) {}); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("a response that is not a success: %v", err)
	}
}

// TestRunCountsSyscalls uses this process as the server, although the load generator in it makes
// system calls too.
func TestRunCountsSyscalls(t *testing.T) {
	j := job(server(t, echo))
	j.Size, j.Count = 128, 20*time.Millisecond
	r, err := measured(t, j, func(bool) {})
	switch {
	case err != nil:
		t.Fatal(err)
	case r.Uncounted != "":
		t.Skip(r.Uncounted)
	case r.Counted == 0 || r.Syscalls < r.Counted:
		t.Errorf("got %d system calls for %d messages", r.Syscalls, r.Counted)
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
	j := job(server(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })) // never replies
	j.Warm = time.Minute
	if _, err := Run(ctx, j, func(bool) {}); err == nil {
		t.Error("no error")
	}
}

// TestRunFurther runs the kinds of load besides echoes on kept connections.
func TestRunFurther(t *testing.T) {
	answers := func(take, give int) func(net.Conn) {
		return func(c net.Conn) {
			in, out := make([]byte, take), pattern(make([]byte, give))
			for {
				if _, err := io.ReadFull(c, in); err != nil {
					return
				}
				if _, err := c.Write(out); err != nil {
					return
				}
			}
		}
	}
	for name, tc := range map[string]struct {
		serve func(net.Conn)
		set   func(*Job)
		ops   int64 // all numbers are multiples of it
	}{
		"pipeline":          {echo, func(j *Job) { j.Size, j.Pipeline = 100, 16 }, 16},
		"pipeline by epoll": {echo, func(j *Job) { j.Size, j.Pipeline, j.Epoll = 100, 16, true }, 16},
		"churn":             {echo, func(j *Job) { j.Size, j.Churn = 100, true }, 1},
		"in":                {answers(100_000, 1), func(j *Job) { j.Reply = 1 }, 1},
		"out":               {answers(1, 100_000), func(j *Job) { j.Size, j.Reply = 1, 100_000 }, 1},
		"out, discarded":    {answers(1, 100_000), func(j *Job) { j.Size, j.Reply, j.Discard = 1, 100_000, true }, 1},
	} {
		j := job(server(t, tc.serve))
		tc.set(&j)
		r, err := measured(t, j, func(bool) {})
		if err != nil || r.Ops == 0 || r.Ops%tc.ops != 0 || r.P50 <= 0 {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	j := job(server(t, func(c net.Conn) { _, _ = io.WriteString(c, "no echo") }))
	j.Size, j.Churn = 7, true
	if _, err := Run(t.Context(), j, func(bool) {}); err == nil {
		t.Error("a wrong answer of a new connection was taken")
	}
}

// TestRunDatagrams loses the first datagram of each socket and answers one twice.
func TestRunDatagrams(t *testing.T) {
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	go func() {
		seen := map[string]int{}
		for buf := make([]byte, 2048); ; {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			switch seen[from.String()]++; seen[from.String()] {
			case 1:
				continue
			case 3:
				_, _ = pc.WriteTo(buf[:n], from)
			}
			_, _ = pc.WriteTo(buf[:n], from)
		}
	}()
	j := job(pc.LocalAddr().String())
	j.Network, j.Size, j.Warm, j.Measure = "udp", 100, 250*time.Millisecond, 20*time.Millisecond
	r, err := measured(t, j, func(bool) {})
	if err != nil || r.Ops == 0 || r.By != "epoll" {
		t.Errorf("%+v, %v", r, err)
	}
}

// datagramServer answers each datagram with those that answer returns for it. n counts the datagrams
// of its sender.
func datagramServer(t *testing.T, answer func(n int, p []byte) [][]byte) (addr string) {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pc.Close() })
	go func() {
		seen := map[string]int{}
		for buf := make([]byte, 2048); ; {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			seen[from.String()]++
			for _, p := range answer(seen[from.String()], buf[:n]) {
				_, _ = pc.WriteTo(p, from)
			}
		}
	}()
	return pc.LocalAddr().String()
}

// TestRunDatagramsTwice answers all datagrams twice. The second copies must not delay the next
// answer until its message is sent again.
func TestRunDatagramsTwice(t *testing.T) {
	j := job(datagramServer(t, func(_ int, p []byte) [][]byte { return [][]byte{p, p} }))
	j.Network, j.Size, j.Measure = "udp", 100, 300*time.Millisecond
	r, err := Run(t.Context(), j, func(bool) {})
	if err != nil || r.P50 >= resendAfter {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestRunBursts answers with four datagrams each, some of which are lost, late, doubled or wrong.
func TestRunBursts(t *testing.T) {
	const size = 100
	text := pattern(make([]byte, 4*size))
	// part is datagram i of the answer to the message that was sent before messages before p.
	part := func(p []byte, before uint64, i int) []byte {
		q := bytes.Clone(text[i*size : (i+1)*size])
		binary.NativeEndian.PutUint64(q, binary.NativeEndian.Uint64(p)-before)
		binary.NativeEndian.PutUint32(q[8:], uint32(i))
		return q
	}
	answer := func(p []byte, before uint64, indexes ...int) (out [][]byte) {
		for _, i := range indexes {
			out = append(out, part(p, before, i))
		}
		return out
	}
	for name, tc := range map[string]struct {
		answer func(n int, p []byte) [][]byte
		again  bool // each message is sent twice
		wrong  bool
	}{
		"in order": {answer: func(_ int, p []byte) [][]byte { return answer(p, 0, 0, 1, 2, 3) }},
		"reversed": {answer: func(_ int, p []byte) [][]byte { return answer(p, 0, 3, 2, 1, 0) }},
		"twice":    {answer: func(_ int, p []byte) [][]byte { return answer(p, 0, 0, 0, 1, 2, 1, 3, 3, 2) }},
		"late":     {answer: func(_ int, p []byte) [][]byte { return append(answer(p, 1, 0, 1, 2, 3), answer(p, 0, 0, 1, 2, 3)...) }},
		"lost": {again: true, answer: func(n int, p []byte) [][]byte {
			if n%2 == 1 {
				return answer(p, 0, 0, 1, 1, 2)
			}
			return answer(p, 0, 0, 1, 2, 3)
		}},
		"of an earlier message": {again: true, answer: func(n int, p []byte) [][]byte { return answer(p, uint64(n%2), 0, 1, 2, 3) }},
		"changed": {wrong: true, answer: func(_ int, p []byte) [][]byte {
			q := part(p, 0, 1)
			q[50]++
			return [][]byte{q}
		}},
		"short": {wrong: true, answer: func(_ int, p []byte) [][]byte { return [][]byte{part(p, 0, 1)[:50]} }},
		"long":  {wrong: true, answer: func(_ int, p []byte) [][]byte { return [][]byte{append(part(p, 0, 1), 0)} }},
		"index": {wrong: true, answer: func(_ int, p []byte) [][]byte {
			q := part(p, 0, 1)
			q[8], q[11] = 4, 4
			return [][]byte{q}
		}},
	} {
		j := job(datagramServer(t, tc.answer))
		j.Network, j.Size, j.Reply, j.Burst, j.Measure = "udp", 20, size, 4, 300*time.Millisecond
		r, err := Run(t.Context(), j, func(bool) {})
		if (err != nil) != tc.wrong || !tc.wrong && (r.Ops == 0 || (r.P50 >= resendAfter) != tc.again) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	j := job("")
	j.Size, j.Reply, j.Burst = 20, size, 4
	if j.Check() == nil {
		t.Error("several datagrams of a stream are accepted")
	}
}

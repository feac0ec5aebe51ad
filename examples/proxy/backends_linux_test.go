// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// process starts a backend in a process of its own.
func process(t *testing.T, address string) (*exec.Cmd, string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), backendEnv+"="+address)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Skipf("needs the address %s: %v", address, err)
	}
	return cmd, strings.TrimSpace(line)
}

// TestBackendsUnderLoad kills, stops, continues and restarts backends while clients send
// and compare numbered blocks: a connection ends or goes on, no byte is another's, the
// checks find each state, and the counters agree with what the clients saw.
func TestBackendsUnderLoad(t *testing.T) {
	t.Run("goroutines", func(t *testing.T) { testBackendsUnderLoad(t, config{}) })
	t.Run("callbacks", func(t *testing.T) { testBackendsUnderLoad(t, config{callbacks: true}) })
}

func testBackendsUnderLoad(t *testing.T, with config) {
	killed, a := process(t, "127.0.0.1:0")
	stopped, b := process(t, "127.0.0.1:0")
	_, c := process(t, "127.0.0.1:0")
	with.backends, with.check = a+","+b+","+c, "/"
	p, address, end := start(t, with)
	up := func(address string) bool {
		for _, b := range p.backends {
			if b.address == address {
				p.check(b)
			}
		}
		return p.stats().Backends[address].Up
	}
	if !up(a) || !up(b) || !up(c) {
		t.Fatalf("%+v", p.stats())
	}

	const clients = 12
	var (
		opened, cut, blocks atomic.Int64
		over                atomic.Bool
		all                 sync.WaitGroup
	)
	for id := range clients {
		all.Go(func() {
			for number := uint64(id) << 32; !over.Load(); number += 1 << 20 {
				again, err := exchange(address, number, &over, &blocks)
				if err != nil {
					t.Error(err)
					return
				}
				opened.Add(1)
				if again {
					cut.Add(1)
				}
			}
		})
	}
	// progress waits until the clients have exchanged more blocks.
	progress := func(n int64) {
		t.Helper()
		from, until := blocks.Load(), time.Now().Add(patience)
		for blocks.Load() < from+n {
			if time.Now().After(until) {
				t.Fatalf("the clients hang: %+v", p.stats())
			}
			time.Sleep(time.Millisecond)
		}
	}
	progress(2000)
	_ = killed.Process.Kill()
	_ = killed.Wait()
	progress(2000)
	if up(a) {
		t.Error("a backend that was killed is up")
	}

	p.patience = 100 * time.Millisecond // The check waits so long for a process that is stopped.
	if err := stopped.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// Its threads stop one after the other, and one that runs might still answer.
	if _, err := syscall.Wait4(stopped.Process.Pid, nil, syscall.WUNTRACED, nil); err != nil {
		t.Fatal(err)
	}
	if up(b) {
		t.Error("a backend that is stopped is up")
	}
	p.patience = patience
	for range 6 { // new connections go to the one that is left
		got, err := exchange(address, 7, nil, &blocks)
		if got || err != nil {
			t.Errorf("while a backend is stopped: %v, %v", got, err)
		}
		opened.Add(1)
	}
	if err := stopped.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if !up(b) {
		t.Error("a backend that continues is not up")
	}
	process(t, a)
	if !up(a) {
		t.Error("a backend that was restarted is not up")
	}
	progress(2000)
	over.Store(true)
	all.Wait()
	if err := end(patience); err != nil {
		t.Error(err)
	}
	s := p.stats()
	var total, open int64
	for _, b := range s.Backends {
		total, open = total+b.Total, open+b.Open
	}
	if s.Accepted != opened.Load() || s.Refused != 0 || total != s.Accepted || open != 0 {
		t.Errorf("%d connections of clients, %d cut: %+v", opened.Load(), cut.Load(), s)
	}
	if cut.Load() == 0 {
		t.Error("the backend that was killed had no connection")
	}
}

// exchange sends numbered blocks by one connection, and compares what comes back: one
// block, or, if over is given, until that or the connection's end, which it reports.
func exchange(address string, number uint64, over *atomic.Bool, blocks *atomic.Int64) (cut bool, err error) {
	c, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return false, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	out, in := make([]byte, 1024), make([]byte, 1024)
	for {
		number++
		for i := 0; i < len(out); i += 8 {
			binary.LittleEndian.PutUint64(out[i:], number)
		}
		if _, err = c.Write(out); err == nil {
			_, err = io.ReadFull(c, in)
		}
		switch {
		case os.IsTimeout(err):
			return false, fmt.Errorf("the connection hangs: %w", err)
		case err != nil:
			return true, nil
		case !bytes.Equal(in, out):
			return false, fmt.Errorf("block %d: other bytes", number)
		}
		blocks.Add(1)
		if over == nil || over.Load() {
			return false, nil
		}
	}
}

// TestCheckStatus takes a backend as down whose status is an error.
func TestCheckStatus(t *testing.T) {
	status := atomic.Pointer[string]{}
	set := func(s string) { status.Store(&s) }
	set("200 OK")
	a, _ := listen(t, func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			fmt.Fprintf(c, "HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n", *status.Load())
		}
	})
	p, _, _ := start(t, config{backends: a, check: "/healthy"})
	for _, s := range []string{"200 OK", "503 Service Unavailable", "302 Found", "404 Not Found", "nonsense"} {
		set(s)
		p.checkAll()
		if got, want := p.stats().Backends[a].Up, s[0] == '2' || s[0] == '3'; got != want {
			t.Errorf("%s: up is %v", s, got)
		}
	}
}

// SPDX-License-Identifier: MIT

// Package busytest tests that a goroutine which is never idle does not keep the other goroutines
// of its process from the network.
package busytest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Run runs the calling test in a second process, and there calls serve, which starts a server and
// returns its address. The server waits for the network. When a client's byte arrives, one of its
// goroutines becomes busy, until over is true. Meanwhile another goroutine of that process must
// answer on a connection of package net.
func Run(t *testing.T, serve func(over *atomic.Bool) (address string)) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	const variable = "RINGSIDE_BUSYTEST"
	if os.Getenv(variable) != "" {
		answer(t, serve)
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.count=1")
	// The collector would wake the runtime's monitor.
	child.Env = append(os.Environ(), variable+"=1", "GOMAXPROCS=2", "GOGC=off")
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	lines := bufio.NewScanner(out)
	var conns []net.Conn
	for len(conns) < 2 && lines.Scan() {
		address, found := strings.CutPrefix(lines.Text(), prefix)
		if !found {
			continue
		}
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	if len(conns) < 2 {
		t.Fatalf("the second process printed %d addresses: %v", len(conns), lines.Err())
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	used := func() int { return processorTime(t, child.Process.Pid) }
	for quiet := 0; quiet < 20; quiet++ {
		before := used()
		time.Sleep(10 * time.Millisecond)
		if used() != before {
			quiet = 0
		}
	}
	before := used()
	if _, err := conns[0].Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	for begun := time.Now(); used() < before+5; time.Sleep(time.Millisecond) {
		if time.Since(begun) > 20*time.Second {
			t.Fatal("no goroutine became busy")
		}
	}
	_ = conns[1].SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := conns[1].Write([]byte{2}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conns[1], make([]byte, 1)); err != nil {
		t.Errorf("beside a busy goroutine: %v", err)
	}
}

// prefix begins the lines that hold an address.
const prefix = "busytest "

// answer is Run in the second process.
func answer(t *testing.T, serve func(over *atomic.Bool) (address string)) {
	var over atomic.Bool
	fmt.Println(prefix + serve(&over))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fmt.Println(prefix + l.Addr().String())
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p := make([]byte, 1)
	if _, err = io.ReadFull(c, p); err == nil {
		_, err = c.Write(p)
	}
	over.Store(true)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Read(p) // until the first process ends this one
}

// processorTime returns the processor time that a process has used, in ticks of 10 ms.
func processorTime(t *testing.T, pid int) int {
	p, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, fields, _ := strings.Cut(string(p), ") ")
	f := strings.Fields(fields)
	var user, system int
	fmt.Sscan(f[11], &user)
	fmt.Sscan(f[12], &system)
	return user + system
}

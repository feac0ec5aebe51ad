// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestRestart replaces the process of a proxy while connections come: none is refused or
// cut, and one from before goes on in the old process until it ends.
// Promise: unet/example-proxy-forwards
func TestRestart(t *testing.T) {
	t.Run("goroutines", func(t *testing.T) { testRestart(t) })
	t.Run("callbacks", func(t *testing.T) { testRestart(t, "-callbacks") })
}

func testRestart(t *testing.T, options ...string) {
	a, _ := backendOf(t, "a")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, append(options, "-addr", "127.0.0.1:0", "-metrics", "127.0.0.1:0", "-backends", a)...)
	cmd.Env = append(os.Environ(), runEnv+"=1")
	cmd.Stderr = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	started, metrics, all := make(chan [2]string, 2), make(chan string, 2), make(chan struct{})
	go func() {
		defer close(all) // when no process has the pipe
		for lines := bufio.NewScanner(r); lines.Scan(); {
			var at, pid string
			if _, err := fmt.Sscanf(lines.Text(), "metrics on %s", &at); err == nil {
				metrics <- at
			}
			if _, err := fmt.Sscanf(lines.Text(), "listening on %s process %s", &at, &pid); err == nil {
				started <- [2]string{at[:len(at)-1], pid}
			}
		}
	}()
	next := func() (address string, pid int) {
		select {
		case s := <-started:
			_, _ = fmt.Sscan(s[1], &pid)
			return s[0], pid
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			t.Fatal("the proxy does not start")
		}
		panic("unreachable")
	}
	address, first := next()
	old := dial(t, address)
	asks(t, old)

	var stop atomic.Bool
	load := make(chan error, 1)
	go func() {
		for !stop.Load() {
			if err := once(address); err != nil {
				load <- err
				return
			}
		}
		load <- nil
	}()
	if err := syscall.Kill(first, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	_, second := next()
	if second == first {
		t.Error("the same process")
	}
	for range 20 {
		if got := asks(t, old); got != "a" {
			t.Errorf("a connection of the old process: %q", got)
		}
		if err := once(address); err != nil {
			t.Error(err)
		}
	}
	stop.Store(true)
	if err := <-load; err != nil {
		t.Errorf("a connection during the restart: %v", err)
	}
	for url := range 2 { // both processes serve on one address, the new one by now
		if s, err := scrape(<-metrics); err != nil || !s.Backends[a].Up {
			t.Errorf("metrics %d: %+v, %v", url, s, err)
		}
	}
	_ = old.Close()
	if err := cmd.Wait(); err != nil { // its last connection has ended
		t.Errorf("the old process: %v", err)
	}
	if err := syscall.Kill(second, syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	select {
	case <-all:
	case <-time.After(patience):
		t.Error("the new process does not end")
		_ = syscall.Kill(second, syscall.SIGKILL)
	}
}

// once makes a connection and gets one answer.
func once(address string) error {
	c, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte("?")); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 1))
	return err
}

func scrape(url string) (Stats, error) {
	r, err := http.Get(url)
	if err != nil {
		return Stats{}, err
	}
	defer r.Body.Close()
	var vars struct{ Proxy Stats }
	err = json.NewDecoder(r.Body).Decode(&vars)
	return vars.Proxy, err
}

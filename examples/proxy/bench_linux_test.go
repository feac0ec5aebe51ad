// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringside-io/ringside/unet/event"
)

// eventEnv makes the test's program a proxy by callbacks. Its value has the addresses of the proxy
// and of the backend, with a comma between them.
const eventEnv = "RINGSIDE_EVENT_PROXY"

func init() {
	listen, backend, ok := strings.Cut(os.Getenv(eventEnv), ",")
	if !ok {
		return
	}
	s, err := eventProxy(listen, backend)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	<-s.Done()
	os.Exit(1)
}

// eventProxy is the proxy of docs/guide-loop.md. It ends both connections when one of them ends.
func eventProxy(listen, backend string) (*event.Server, error) {
	other := func(c *event.Conn) *event.Conn { return c.Value().(*event.Conn) }
	h := event.Handler{
		OnData: func(c *event.Conn, data []byte) {
			to := other(c)
			_, _ = to.Write(data) // an error ends the pair by OnClose
			if to.Full() {
				c.PauseRead()
			}
		},
		OnWritable: func(c *event.Conn) { other(c).ResumeRead() },
		OnClose: func(c *event.Conn, _ error) {
			if to, ok := c.Value().(*event.Conn); ok {
				_ = to.Close()
			}
		},
	}
	accepted := h
	accepted.OnOpen = func(c *event.Conn) {
		c.SetFullDuplex(true)
		c.PauseRead() // until the backend is connected
		dialled := h
		dialled.OnOpen = func(to *event.Conn) {
			c.SetValue(to)
			to.SetFullDuplex(true)
			c.ResumeRead()
		}
		go func() { // Dial waits
			o := event.ConnOptions{Handler: &dialled, Beside: c, Value: c}
			if _, err := c.Server().Dial(context.Background(), "tcp", backend, o); err != nil {
				c.Abort()
			}
		}()
	}
	return event.Listen("tcp", listen, accepted, event.Options{})
}

// besides are the proxies of BenchmarkProxy: how each is started to listen on one
// address and to pass on to another. haproxy has two threads, nginx one process.
var besides = []struct {
	name  string
	start func(dir, listen, backend string) (*exec.Cmd, error)
}{
	{"ringside", ownProxy("-mode", "auto")},
	{"callbacks", ownProxy("-callbacks")},
	{"net", ownProxy("-mode", "net")},
	{"event", func(_, listen, backend string) (*exec.Cmd, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), eventEnv+"="+listen+","+backend)
		return cmd, nil
	}},
	{"haproxy", func(dir, listen, backend string) (*exec.Cmd, error) {
		file := filepath.Join(dir, "haproxy.cfg")
		return exec.Command("haproxy", "-q", "-db", "-f", file), os.WriteFile(file, fmt.Appendf(nil, `
global
	nbthread 2
	maxconn 1000
defaults
	mode tcp
	timeout connect 10s
	timeout client 60s
	timeout server 60s
	option splice-auto
listen all
	bind %s
	server one %s
`, listen, backend), 0o600)
	}},
	{"nginx", func(dir, listen, backend string) (*exec.Cmd, error) {
		const stream = "/usr/lib/nginx/modules/ngx_stream_module.so"
		if _, err := os.Stat(stream); err != nil {
			return nil, err
		}
		file := filepath.Join(dir, "nginx.conf")
		return exec.Command("nginx", "-c", file, "-p", dir, "-e", filepath.Join(dir, "error.log")), os.WriteFile(file, fmt.Appendf(nil, `
load_module %s;
daemon off;
master_process off;
pid nginx.pid;
events { worker_connections 4096; }
stream { server { listen %s; proxy_pass %s; } }
`, stream, listen, backend), 0o600)
	}},
}

func ownProxy(args ...string) func(dir, listen, backend string) (*exec.Cmd, error) {
	return func(_, listen, backend string) (*exec.Cmd, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		cmd := exec.Command(self, append([]string{"-addr", listen, "-backends", backend}, args...)...)
		cmd.Env = append(os.Environ(), runEnv+"=1")
		return cmd, nil
	}
}

// beside starts a proxy and returns its address and the processor time that it has used.
func beside(b *testing.B, start func(dir, listen, backend string) (*exec.Cmd, error), backend string) (address string, cpu func() time.Duration) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // a free address
	if err != nil {
		b.Fatal(err)
	}
	address = l.Addr().String()
	_ = l.Close()
	var out bytes.Buffer
	cmd, err := start(b.TempDir(), address, backend)
	if err == nil {
		cmd.Stderr = &out
		err = cmd.Start()
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
		b.Skipf("needs haproxy, or nginx with its stream module (Debian: haproxy, nginx, libnginx-mod-stream): %v", err)
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if once(address) == nil {
			break
		}
		if time.Now().After(end) {
			_, _ = cmd.Process.Kill(), cmd.Wait()
			b.Fatalf("does not serve: %s", out.Bytes())
		}
	}
	return address, func() time.Duration { return processorTime(b, cmd.Process.Pid) }
}

// processorTime returns the processor time of a process, to 10 ms.
func processorTime(b *testing.B, pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	var user, system int
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	_, _ = fmt.Sscan(string(fields[11]), &user)
	_, _ = fmt.Sscan(string(fields[12]), &system)
	return time.Duration(user+system) * 10 * time.Millisecond
}

const (
	benchClients = 50
	bulkBytes    = 16 << 20
)

// echo starts a server that sends back what it receives, and bulkBytes for a single "b".
func echo(b *testing.B) (address string) {
	bulk := make([]byte, 1<<20)
	address, _ = listen(b, func(c net.Conn) {
		p := make([]byte, 1024)
		for {
			n, err := c.Read(p)
			if err != nil {
				return
			}
			if n == 1 && p[0] == 'b' {
				for range bulkBytes / len(bulk) {
					_, _ = c.Write(bulk)
				}
				continue
			}
			if _, err := c.Write(p[:n]); err != nil {
				return
			}
		}
	})
	return address
}

// BenchmarkProxy passes connections through this proxy, on the sockets of unet, with -callbacks, and
// on the sockets of package net, through the proxy of docs/guide-loop.md, and through haproxy and nginx: small messages on kept
// connections, a connection for each message, and much data on four connections. It
// reports the processor time of the proxy for each.
func BenchmarkProxy(b *testing.B) {
	for _, work := range []struct {
		name    string
		clients int
		do      func(address string, c *net.Conn) error
	}{
		{"messages", benchClients, message},
		{"connections", benchClients, func(address string, _ *net.Conn) error { return once(address) }},
		{"16MiB", 4, download},
	} {
		for _, proxy := range besides {
			b.Run(work.name+"/"+proxy.name, func(b *testing.B) {
				address, cpu := beside(b, proxy.start, echo(b))
				share := make(chan struct{}, benchClients)
				var all sync.WaitGroup
				for range work.clients {
					all.Go(func() {
						var c net.Conn
						for range share {
							if err := work.do(address, &c); err != nil {
								b.Error(err)
							}
						}
						if c != nil {
							_ = c.Close()
						}
					})
				}
				before := cpu()
				b.ResetTimer()
				for range b.N {
					share <- struct{}{}
				}
				close(share)
				all.Wait()
				b.StopTimer()
				b.ReportMetric(float64((cpu()-before).Microseconds())/float64(b.N), "cpu-µs/op")
			})
		}
	}
}

func connect(address string, c *net.Conn) (err error) {
	if *c == nil {
		*c, err = net.Dial("tcp", address)
	}
	return err
}

func message(address string, c *net.Conn) error {
	if err := connect(address, c); err != nil {
		return err
	}
	p := make([]byte, 128)
	if _, err := (*c).Write(p); err != nil {
		return err
	}
	_, err := io.ReadFull(*c, p)
	return err
}

func download(address string, c *net.Conn) error {
	if err := connect(address, c); err != nil {
		return err
	}
	if _, err := (*c).Write([]byte("b")); err != nil {
		return err
	}
	_, err := io.CopyN(io.Discard, *c, bulkBytes)
	return err
}

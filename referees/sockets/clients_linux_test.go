// SPDX-License-Identifier: MIT

package sockets

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/unet"
	"github.com/ringside-io/ringside/unet/event"
)

// TestClients runs clients of other projects against servers of this module: the scripts of
// scripts/clients whose program is installed. The variable TIMES makes them run longer.
func TestClients(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes: not with -short")
	}
	t.Run("http", func(t *testing.T) {
		eachMode(t, func(t *testing.T, s *unet.System) {
			env := serveBoth(t, s)
			for _, name := range []string{"curl", "ab", "wrk", "nghttp"} {
				if name == "curl" && !ringtest.Long() && strings.HasSuffix(t.Name(), "/net") {
					continue // the slowest of them, on package net's sockets: only with RINGSIDE_LONG=1
				}
				client(t, name, env...)
			}
		})
	})
	t.Run("echo", func(t *testing.T) {
		eachMode(t, func(t *testing.T, s *unet.System) {
			tcp, unix := serveEcho(t, s, "tcp", "127.0.0.1:0"), serveEcho(t, s, "unix", filepath.Join(t.TempDir(), "s"))
			client(t, "socat", "ECHO="+tcp, "ECHO_UNIX="+unix)
			client(t, "netcat", "ECHO="+tcp, "ECHO_UNIX="+unix)
		})
		eachEventMode(t, func(t *testing.T, o event.Options) {
			tcp, unix := eventEcho(t, "tcp", "127.0.0.1:0", o), eventEcho(t, "unix", filepath.Join(t.TempDir(), "s"), o)
			client(t, "socat", "ECHO="+tcp, "ECHO_UNIX="+unix)
			client(t, "netcat", "ECHO="+tcp, "ECHO_UNIX="+unix)
		})
	})
	t.Run("resp", func(t *testing.T) {
		program := filepath.Join(t.TempDir(), "redis")
		if out, err := exec.Command("go", "build", "-o", program, "../../examples/redis").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		eachEventMode(t, func(t *testing.T, o event.Options) {
			client(t, "redis", "RESP="+serverProgram(t, program, "-addr", "127.0.0.1:0", "-mode", o.Mode.String()))
		})
	})
}

// client runs one of the scripts.
func client(t *testing.T, name string, env ...string) {
	t.Run(name, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, filepath.Join("..", "..", "scripts", "clients", name))
		cmd.Env = append(os.Environ(), env...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.WaitDelay = 10 * time.Second
		out, err := cmd.CombinedOutput()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 77 {
			t.Skip(strings.TrimSpace(string(out)))
		}
		if err != nil {
			t.Errorf("%v\n%s", err, out)
			return
		}
		t.Logf("%s", out)
	})
}

// eventModes are the backends of package event.
var eventModes = []event.Mode{event.ModeRing, event.ModeEpoll, event.ModeNet}

// eachEventMode runs a test with each of them.
func eachEventMode(t *testing.T, f func(t *testing.T, o event.Options)) {
	for _, mode := range eventModes {
		t.Run("event-"+mode.String(), func(t *testing.T) {
			if mode == event.ModeRing {
				needEventRing(t)
			}
			f(t, event.Options{Mode: mode})
		})
	}
}

func needEventRing(t *testing.T) {
	t.Helper()
	s, err := event.Listen("tcp", "127.0.0.1:0", event.Handler{}, event.Options{Mode: event.ModeRing})
	if err != nil {
		needRing(t, err)
		t.Fatal(err)
	}
	_ = s.Close()
}

// serveBoth serves HTTP and HTTPS and returns the addresses as environment variables.
func serveBoth(t *testing.T, s *unet.System) (env []string) {
	t.Helper()
	cert, _ := certificate(t)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	env = []string{"CACERT=" + ca}
	for _, scheme := range []string{"http", "https"} {
		l := listen(t, s)
		server := &http.Server{Handler: handler(), ErrorLog: log.New(io.Discard, "", 0),
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}}
		done := make(chan error, 1)
		go func() {
			if scheme == "https" {
				done <- server.ServeTLS(l, "", "")
			} else {
				done <- server.Serve(l)
			}
		}()
		t.Cleanup(func() {
			_ = server.Close() // clients may leave connections open
			if err := <-done; !errors.Is(err, http.ErrServerClosed) {
				t.Errorf("serve: %v", err)
			}
		})
		env = append(env, strings.ToUpper(scheme)+"="+scheme+"://"+l.Addr().String())
	}
	return env
}

// serveEcho starts an echo server and returns its address.
func serveEcho(t *testing.T, s *unet.System, network, address string) string {
	t.Helper()
	l, err := s.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { echo(c) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	return l.Addr().String()
}

func echo(c net.Conn) {
	defer c.Close()
	_, _ = io.Copy(c, c)
}

// eventEcho is serveEcho of package event.
func eventEcho(t *testing.T, network, address string, o event.Options) string {
	t.Helper()
	s, err := event.Listen(network, address, event.Handler{
		OnData: func(c *event.Conn, p []byte) { _, _ = c.Write(p) },
	}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.Addr().String()
}

var listening = regexp.MustCompile(`listening on ([^ ,]+)`)

// serverProgram runs a server that prints its address, and returns the address.
func serverProgram(t *testing.T, path string, args ...string) string {
	t.Helper()
	cmd := exec.Command(path, args...)
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	})
	line, err := bufio.NewReader(said).ReadString('\n')
	m := listening.FindStringSubmatch(line)
	if m == nil {
		t.Fatalf("%q, %v", line, err)
	}
	return m[1]
}

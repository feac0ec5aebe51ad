// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringside-io/ringside/examples/internal/accept/accepttest"
	"github.com/ringside-io/ringside/unet"
)

// start serves an inbox; copying forbids it the ring.
func start(t *testing.T, copying bool) (addr, dir string, stop func()) {
	t.Helper()
	dir = t.TempDir()
	in, err := openInbox(dir, 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	if copying && in.ring != nil {
		if err := in.ring.Close(); err != nil {
			t.Fatal(err)
		}
		in.ring = nil
	}
	l, err := unet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- serve(ctx, accepttest.Full(l), in) }()
	return l.Addr().String(), dir, sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-over:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("the server does not end")
		}
		if err := in.close(); err != nil {
			t.Error(err)
		}
	})
}

// send sends a request, in pieces, and returns the answer.
func send(t *testing.T, addr, head string, body []byte) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer c.Close()
	go func() {
		_, _ = io.WriteString(c, head)
		for rest := body; len(rest) > 0; {
			n := min(1+rand.IntN(200_000), len(rest))
			if _, err := c.Write(rest[:n]); err != nil {
				return
			}
			rest = rest[n:]
		}
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	answer, _ := io.ReadAll(c) // a refusal may come with a reset
	return string(answer)
}

// Promise: examples/upload-appears-whole
func TestUpload(t *testing.T) {
	for name, copying := range map[string]bool{"splice where it can": false, "copy": true} {
		t.Run(name, func(t *testing.T) {
			addr, dir, stop := start(t, copying)
			defer stop()
			var wg sync.WaitGroup
			for i := range 12 {
				wg.Go(func() {
					body := bytes.Repeat([]byte{byte(i), 1, 2, 3, 4, 5, 6}, i*i*3001)
					file := fmt.Sprintf("file-%d.bin", i)
					if answer := send(t, addr, fmt.Sprintf("%s %d\n", file, len(body)), body); answer != "kept\n" {
						t.Errorf("%s: %q", file, answer)
					}
					got, err := os.ReadFile(filepath.Join(dir, file))
					if err != nil || !bytes.Equal(got, body) {
						t.Errorf("%s: %v, %d bytes, want %d", file, err, len(got), len(body))
					}
				})
			}
			wg.Wait()
			for head, body := range map[string]string{
				"../escape 1\n":          "x",
				".hidden 1\n":            "x",
				"dir/file 1\n":           "x",
				"big 99999999\n":         "x",
				"negative -1\n":          "x",
				"no length\n":            "x",
				"short 10\n":             "x", // ends before it is whole
				strings.Repeat("a", 200): "",
			} {
				if answer := send(t, addr, head, []byte(body)); strings.HasPrefix(answer, "kept") {
					t.Errorf("%q was kept", head)
				}
			}
			stop()
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) != 12 {
				t.Errorf("%v: %v", err, entries)
			}
		})
	}
}

// TestEndDuringUpload ends the server while a file is on its way: nothing is left of it.
// Promise: examples/upload-appears-whole
func TestEndDuringUpload(t *testing.T) {
	addr, dir, stop := start(t, false)
	defer stop()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "half 1000000\nsome"); err != nil {
		t.Fatal(err)
	}
	for { // until the server has begun
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) > 0 {
			break
		}
	}
	stop()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("%v: %v", err, entries)
	}
}

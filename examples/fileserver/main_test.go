// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/unet"
)

// TestServe gets files, ranges and what must not be served, then ends the server while a client has
// taken a part.
func TestServe(t *testing.T) {
	dir := t.TempDir()
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	write := func(name string, p []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), p, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("big", content)
	write("small.txt", []byte("hello"))
	write(".hidden", []byte("no"))
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("no"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.Symlink(outside, filepath.Join(dir, "out")), os.Symlink("small.txt", filepath.Join(dir, "in")),
		syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	l, err := unet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- serve(ctx, l, root) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: ringtest.Patience}
	for _, tc := range []struct {
		path, rang string
		status     int
		body       []byte
	}{
		{"/big", "", 200, content},
		{"/big", "bytes=5-2000004", 206, content[5:2000005]},
		{"/small.txt", "", 200, []byte("hello")},
		{"/in", "", 200, []byte("hello")},
		{"/.hidden", "", 404, nil},
		{"/fifo", "", 404, nil},
		{"/missing", "", 404, nil},
		{"/out", "", 500, nil},
		{"/../secret", "", 404, nil},
	} {
		req, err := http.NewRequest(http.MethodGet, "http://"+l.Addr().String()+tc.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if tc.rang != "" {
			req.Header.Set("Range", tc.rang)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != tc.status || tc.body != nil && !bytes.Equal(got, tc.body) {
			t.Errorf("%s %s: %s, %d bytes, %v", tc.path, tc.rang, res.Status, len(got), err)
		}
	}
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /big HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	cancel()
	select {
	case err := <-over:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(ringtest.Patience):
		t.Fatal("the server does not end")
	}
}

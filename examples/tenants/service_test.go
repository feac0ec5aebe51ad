// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/unet"
)

// serve runs a service and returns a client for it and what ends it.
func serve(t *testing.T, c config) (*client, func()) {
	t.Helper()
	c.addr = "127.0.0.1:0"
	if c.open == 0 {
		c.open = 8
	}
	if c.vfs == "" {
		c.vfs = "ringside-log"
	}
	c.ending = ringtest.Patience
	s, err := listen(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx) }()
	end := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(end)
	k := &client{addr: s.addr().String()}
	t.Cleanup(k.close)
	return k, end
}

// want asks and compares status and answer; "" is any.
func want(t *testing.T, k *client, method, path, body string, status int, answer string) {
	t.Helper()
	code, got, err := k.ask(method, path, []byte(body))
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	if code != status || answer != "" && strings.TrimSpace(string(got)) != answer {
		t.Errorf("%s %s: %d %q, want %d %q", method, path, code, got, status, answer)
	}
}

// Items are there after a restart, with each kind of VFS.
func TestItemsSurviveARestart(t *testing.T) {
	for _, vfs := range []string{"default", "ringside", "ringside-log"} {
		t.Run(vfs, func(t *testing.T) {
			c := config{dir: t.TempDir(), vfs: vfs}
			k, end := serve(t, c)
			want(t, k, "GET", "/tenants/alice", "", 404, "")
			want(t, k, "POST", "/tenants/alice/items", "hello", 201, `{"id":1}`)
			want(t, k, "POST", "/tenants/alice/items", "again", 201, `{"id":2}`)
			want(t, k, "POST", "/tenants/bob/items", "", 201, `{"id":1}`)
			end()
			k, _ = serve(t, c)
			want(t, k, "GET", "/tenants/alice/items/1", "", 200, "hello")
			want(t, k, "GET", "/tenants/alice/items/3", "", 404, "")
			want(t, k, "GET", "/tenants/alice/items/x", "", 400, "")
			want(t, k, "GET", "/tenants/alice", "", 200, `{"items":2}`)
			want(t, k, "GET", "/tenants/bob", "", 200, `{"items":1}`)
			want(t, k, "GET", "/tenants/carol", "", 404, "")
			if _, err := os.Stat(filepath.Join(c.dir, "carol.db")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("asking for a tenant made its database: %v", err)
			}
		})
	}
}

// Acknowledged items are in the backup when the service has ended, and are served from a restored directory.
func TestBackupIsRestored(t *testing.T) {
	c := config{dir: t.TempDir(), backup: filepath.Join(t.TempDir(), "saved")}
	k, end := serve(t, c)
	for i := range 20 {
		want(t, k, "POST", fmt.Sprintf("/tenants/t%d/items", i%3), fmt.Sprint("item ", i), 201, "")
	}
	end()
	if err := restore(t.Context(), c.dir, t.TempDir()); err == nil {
		t.Error("a directory without a backup was restored")
	}
	for range 2 { // the second start continues the streams
		dir := t.TempDir()
		if err := restore(t.Context(), c.backup, dir); err != nil {
			t.Fatal(err)
		}
		k, end = serve(t, config{dir: dir, backup: c.backup})
		want(t, k, "GET", "/tenants/t0", "", 200, "")
		want(t, k, "GET", "/tenants/t2/items/6", "", 200, "item 17")
		want(t, k, "POST", "/tenants/t0/items", "more", 201, "")
		end()
		if err := restore(t.Context(), c.backup, dir); !errors.Is(err, os.ErrExist) {
			t.Errorf("restored over databases: %v", err)
		}
	}
}

// A client that ends in the middle of an item is told so, and is no error of the service.
func TestItemThatDoesNotArrive(t *testing.T) {
	var logged bytes.Buffer
	k, end := serve(t, config{dir: t.TempDir(), vfs: "default"})
	log.SetOutput(&logged)
	defer log.SetOutput(os.Stderr)
	c, err := net.Dial("tcp", k.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(ringtest.Patience))
	if _, err := io.WriteString(c, "POST /tenants/alice/items HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf"); err != nil {
		t.Fatal(err)
	}
	_ = c.(*net.TCPConn).CloseWrite()
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || res.StatusCode != http.StatusBadRequest {
		t.Errorf("%v, %v", res, err)
	}
	want(t, k, "GET", "/tenants/alice", "", 404, "")
	end()
	if logged.Len() > 0 {
		t.Errorf("logged: %s", &logged)
	}
}

// No name leads out of the directory, and none makes a file that is not a
// tenant's.
func TestBadNamesAreRefused(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "root")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	k, end := serve(t, config{dir: dir, vfs: "default"})
	for _, name := range []string{
		"%2e%2e", "%2e", "..%2fescape", "%2fetc%2fpasswd", "..%5cescape", "a%2fb", "a%00b", "Alice", "a.db", "a%3fvfs=os", "a%23b",
		"-a", "_a", "%20", "%c3%a4", strings.Repeat("a", 65), "file:a", "a%0a",
	} {
		want(t, k, "POST", "/tenants/"+name+"/items", "x", 400, "")
		want(t, k, "GET", "/tenants/"+name+"/items/1", "", 400, "")
		want(t, k, "GET", "/tenants/"+name, "", 400, "")
	}
	end()
	for d, most := range map[string]int{parent: 1, dir: 0} {
		if all, err := os.ReadDir(d); err != nil || len(all) > most {
			t.Errorf("%s: %v, %v", d, all, err)
		}
	}
}

// A link in the directory may lead anywhere.
func TestLinksAreRefused(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "elsewhere.db")
	if err := os.WriteFile(elsewhere, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(dir, "link.db")); err != nil {
		t.Fatal(err)
	}
	k, _ := serve(t, config{dir: dir})
	want(t, k, "POST", "/tenants/link/items", "x", 500, `{"error":"Internal Server Error"}`)
	if info, err := os.Stat(elsewhere); err != nil || info.Size() != 0 {
		t.Errorf("what the link leads to was written: %v, %v", info, err)
	}
}

func TestLargeItemsAreRefused(t *testing.T) {
	k, _ := serve(t, config{dir: t.TempDir()})
	want(t, k, "POST", "/tenants/a/items", strings.Repeat("x", most), 201, "")
	code, _, err := k.ask("POST", "/tenants/a/items", bytes.Repeat([]byte("x"), most+1))
	if err == nil && code != 413 { // or the connection is closed while it is still sent
		t.Errorf("status %d", code)
	}
}

// A database that cannot be opened is an error for its requests, and is tried
// again.
func TestADatabaseThatCannotBeOpened(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.db")
	if err := os.WriteFile(bad, bytes.Repeat([]byte("no database "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	k, _ := serve(t, config{dir: dir})
	want(t, k, "GET", "/tenants/bad", "", 500, "")
	if err := os.Remove(bad); err != nil {
		t.Fatal(err)
	}
	want(t, k, "POST", "/tenants/bad/items", "x", 201, `{"id":1}`)
}

// A request that is under way when the service ends gets its answer, and what
// it stored is there.
func TestRequestsFinishAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	k, end := serve(t, config{dir: dir})
	body, half := io.Pipe()
	request, err := http.NewRequest("POST", "http://"+k.addr+"/tenants/a/items", body)
	if err != nil {
		t.Fatal(err)
	}
	request.ContentLength = 4
	// The body is asked for by the handler that reads it.
	request.Header.Set("Expect", "100-continue")
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: ringtest.Patience}}
	defer client.CloseIdleConnections()
	got := make(chan error, 1)
	go func() {
		res, err := client.Do(request)
		if err == nil {
			if res.StatusCode != http.StatusCreated {
				err = errors.New(res.Status)
			}
			_ = res.Body.Close()
		}
		got <- err
	}()
	if _, err := half.Write([]byte("ha")); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		end()
		close(ended)
	}()
	if _, err := half.Write([]byte("lf")); err != nil {
		t.Fatal(err)
	}
	_ = half.Close()
	if err := <-got; err != nil {
		t.Error(err)
	}
	<-ended
	k, _ = serve(t, config{dir: dir})
	want(t, k, "GET", "/tenants/a/items/1", "", 200, "half")
}

// What the service says of itself names what carries the connections: io_uring,
// or what stands in for it and why.
func TestTheServiceSaysWhatItStandsOn(t *testing.T) {
	k, _ := serve(t, config{dir: t.TempDir()})
	var s stats
	if err := k.want(200, "GET", "/stats", nil, &s); err != nil {
		t.Fatal(err)
	}
	name, reason := unet.Backend()
	if s.VFS != "ringside-log" || s.Backend != name || s.Reason != reason || s.Threads < 1 {
		t.Errorf("%+v", s)
	}
	if features.HaveIOURing() != nil && (s.Backend != "plain" || s.Reason == "") {
		t.Errorf("io_uring cannot be used here, and the service says %+v", s)
	}
}

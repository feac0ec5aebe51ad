// SPDX-License-Identifier: MIT

package fileserver

import (
	"context"
	"html"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
)

var hrefs = regexp.MustCompile(`<a href="([^"]*)">([^<]*)</a>`)

// TestListLeadsToFiles uses file names with a meaning in URLs, HTML or headers, and follows
// each link of the list as a browser does.
func TestListLeadsToFiles(t *testing.T) {
	dir := t.TempDir()
	names := map[string]bool{}
	for _, name := range []string{
		"plain", "a b", " lead", "trail ", "%2e%2e", "%00", "50%", "%zz", "a?b=c", "a#b", "a&amp;b", "<script>alert(1)<\u2044script>", `"><img src=x onerror=alert(1)>`, "'", "`",
		"javascript:alert(1)", "data:text,x", "http:", "...", "..a", "a..", "~", "{{.}}", "a\nb", "a\r\nSet-Cookie: x", "a\tb", "\u202egpj.exe", "ä", "a\\b", "\\\\host\\x", ";x", "a;b", "*", "|", "-", "--", "+",
	} {
		if os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644) == nil { // otherwise the system does not permit such names
			names[name] = !strings.HasPrefix(name, ".")
		}
	}
	addr := start(t, dir, Options{List: true, NoGzip: true})
	base, _ := url.Parse("http://" + addr + "/")
	list := ask(t, addr, "GET", "/", nil)
	for _, m := range hrefs.FindAllStringSubmatch(list.body, -1) {
		name := html.UnescapeString(m[2])
		to, err := base.Parse(html.UnescapeString(m[1]))
		if err != nil || to.Host != addr {
			t.Errorf("%q leads to %v, %v", name, to, err)
			continue
		}
		if a := ask(t, addr, "GET", to.RequestURI(), nil); a.status != 200 || a.body != name {
			t.Errorf("%q by %s: %d %q", name, to.RequestURI(), a.status, a.body)
		}
		if !names[name] {
			t.Errorf("%q is listed", name)
		}
		delete(names, name)
	}
	for name, visible := range names {
		if visible {
			t.Errorf("%q is missing", name)
		}
	}
}

// TestListOfBytes lists a name that is not valid text.
func TestListOfBytes(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "\xff<b>"), nil, 0o644); err != nil {
		t.Skipf("a name of bytes: %v", err)
	}
	addr := start(t, dir, Options{List: true})
	if a := ask(t, addr, "GET", "/", nil); a.status != 200 || strings.Contains(a.body, "<b>") {
		t.Errorf("%d %q", a.status, a.body)
	}
	if a := ask(t, addr, "GET", "/%ff%3Cb%3E", nil); a.status != 404 { // as package net/http
		t.Errorf("%d", a.status)
	}
}

// TestManyRanges requests as many ranges as fit into a header. Bytes that the ranges have in common
// must be sent at most once.
func TestManyRanges(t *testing.T) {
	const size = 200_000
	addr := start(t, tree(t, map[string]string{"f.jpg": strings.Repeat("x", size)}), Options{})
	for ranges, want := range map[string]int{
		"bytes=" + strings.Repeat("0-,", 4000) + "0-":  200, // the file, once
		"bytes=" + strings.Repeat("5-9,", 500) + "5-9": 206,
		"bytes=" + strings.Repeat(",", 15000) + "1-2":  206,
		"bytes=-9223372036854775808":                   416,
		"bytes=9223372036854775807-":                   416,
		"bytes=0-9223372036854775807":                  206,
		"bytes=0-18446744073709551616":                 416,
		"bytes=-0":                                     206, // as package net/http does: no range
		"bytes=1-2\t, \t3-4":                           206,
		"bytes=--1":                                    416,
		"bytes=0x1-2":                                  416,
		"bytes=1-2;q=1":                                416,
		"bytes=" + strings.Repeat("0-199999,", 2) + "-9223372036854775807": 200,
	} {
		a := ask(t, addr, "GET", "/f.jpg", http.Header{"Range": {ranges}})
		if a.status != want || len(a.body) > 3*size {
			t.Errorf("%.40s: status %d, want %d; %d bytes", ranges, a.status, want, len(a.body))
		}
	}
}

// TestNothingShrinksTwice accepts gzip for files that are already compressed.
func TestNothingShrinksTwice(t *testing.T) {
	text := strings.Repeat("it would shrink. ", 500)
	files := map[string]string{}
	for _, ext := range []string{
		"gz", "tgz", "zip", "bz2", "xz", "zst", "7z", "br", "jpg", "jpeg", "png", "gif", "webp", "avif", "mp3", "mp4", "webm", "ogg", "pdf", "woff", "woff2", "svgz", "docx", "jar", "apk",
	} {
		files["f."+ext] = text
	}
	addr := start(t, tree(t, files), Options{})
	for name := range files {
		if a := ask(t, addr, "GET", "/"+name, fields("Accept-Encoding: gzip, br, zstd, *")); a.body != text || a.header.Get("Content-Encoding") != "" {
			t.Errorf("%s: %v", name, a.header)
		}
	}
}

// TestCompressedOutside has a file outside of the directory under the name of the
// compressed form of a file inside: it must not be served.
func TestCompressedOutside(t *testing.T) {
	const secret = "a secret"
	text := strings.Repeat("text. ", 1000)
	outside := tree(t, map[string]string{"secret": secret})
	dir := tree(t, map[string]string{"link.txt": text, "dir.txt": text, "dir.txt.gz/x": secret})
	if err := os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "link.txt.gz")); err != nil {
		t.Skipf("symbolic links: %v", err)
	}
	addr := start(t, dir, Options{})
	for _, name := range []string{"/link.txt", "/dir.txt"} {
		if a := ask(t, addr, "GET", name, fields("Accept-Encoding: gzip")); a.status != 200 || unzip(t, a.body) != text {
			t.Errorf("%s: %d %q", name, a.status, a.body)
		}
	}
}

// TestDrippingClient sends a header that never ends.
func TestDrippingClient(t *testing.T) {
	_, addr, _ := running(t, tree(t, nil), func(s *Server) {
		s.http.ReadHeaderTimeout, s.http.ReadTimeout = 50*time.Millisecond, 100*time.Millisecond
	})
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	for pause := range time.Tick(time.Millisecond) {
		_ = pause
		if _, err = io.WriteString(c, "G"); err != nil {
			break
		}
	}
	if isTimeout(err) {
		t.Error("the connection is still open")
	}
}

// TestEndWithSilentClients checks that Shutdown does not wait for connections without a
// response in progress, and does not report them as cut off.
func TestEndWithSilentClients(t *testing.T) {
	for _, grace := range []time.Duration{0, patience} {
		s, addr, served := running(t, tree(t, map[string]string{"f.txt": "text"}), func(*Server) {})
		var conns []net.Conn
		for _, begin := range []string{"", "GET /f.txt HT", "GET /f.txt HTTP/1.1\r\nHost: h\r\n", "GET /f.txt HTTP/1.1\r\nHost: h\r\n\r\n"} {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(patience))
			io.WriteString(c, begin)
			conns = append(conns, c)
		}
		if res, err := http.ReadResponse(newReader(conns[3]), nil); err != nil || res.ContentLength != 4 {
			t.Fatalf("%v, %v", res, err)
		}
		idle(t, s)
		late, cancel := context.WithTimeout(t.Context(), grace)
		begin := time.Now()
		if err := s.Shutdown(late); err != nil {
			t.Errorf("Shutdown after %v: %v", grace, err)
		}
		t.Logf("ended in %v", time.Since(begin).Round(time.Millisecond))
		if grace > 0 && (late.Err() != nil || !s.phases.ended) {
			t.Error("net/http still waits")
		}
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		for i, c := range conns {
			if _, err := io.ReadAll(c); isTimeout(err) {
				t.Errorf("connection %d is still open", i)
			}
		}
	}
}

// idle waits until no response is in progress.
func idle(t *testing.T, s *Server) {
	t.Helper()
	for end := time.Now().Add(patience); s.phases.answering.Load() != 0; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("a response does not end")
		}
	}
}

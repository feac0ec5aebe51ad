// SPDX-License-Identifier: MIT

package fileserver

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func unzip(t *testing.T, s string) string {
	t.Helper()
	z, err := gzip.NewReader(strings.NewReader(s))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

func TestGzip(t *testing.T) {
	text := strings.Repeat("some text that shrinks. ", 1000)
	noise := make([]byte, 0, 8000)
	for i := range 8000 {
		noise = append(noise, byte(uint32(i*i>>3)^uint32(i)*2654435761>>13))
	}
	dir := tree(t, map[string]string{
		"a.txt": text, "small.txt": "short", "a.jpg": text, "noise.txt": string(noise), "beside.css": text, "stale.css": text,
	})
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	io.WriteString(z, "made by somebody")
	z.Close()
	for name, when := range map[string]time.Time{"beside.css.gz": stamp, "stale.css.gz": stamp.Add(-time.Second)} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, zipped.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		os.Chtimes(path, when, when)
	}
	addr := start(t, dir, Options{})
	accept := fields("Accept-Encoding: gzip")
	for range 2 { // from the disk and from memory
		plain, gz := ask(t, addr, "GET", "/a.txt", nil), ask(t, addr, "GET", "/a.txt", accept)
		if plain.body != text || plain.header.Get("Content-Encoding") != "" || plain.header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("plain: %v", plain.header)
		}
		if unzip(t, gz.body) != text || gz.header.Get("Content-Encoding") != "gzip" || gz.header.Get("Vary") != "Accept-Encoding" ||
			gz.header.Get("Content-Length") != fmt.Sprint(len(gz.body)) || gz.header.Get("Etag") == plain.header.Get("Etag") || gz.header.Get("Content-Type") != plain.header.Get("Content-Type") {
			t.Errorf("gzip: %v", gz.header)
		}
		if head := ask(t, addr, "HEAD", "/a.txt", accept); head.header.Get("Content-Length") != gz.header.Get("Content-Length") || head.body != "" {
			t.Errorf("HEAD: %v", head.header)
		}
		tag := gz.header.Get("Etag")
		if a := ask(t, addr, "GET", "/a.txt", fields("Accept-Encoding: gzip", "If-None-Match: "+tag)); a.status != 304 || a.body != "" || a.header.Get("Etag") != tag {
			t.Errorf("304: %+v", a)
		}
		if a := ask(t, addr, "GET", "/a.txt", fields("Accept-Encoding: gzip", `If-Match: "x"`)); a.status != 412 || a.body != "" || a.header.Get("Content-Encoding") != "" {
			t.Errorf("412: %+v", a)
		}
		if a := ask(t, addr, "GET", "/a.txt", fields("Accept-Encoding: gzip", "Range: bytes=99999-")); a.status != 416 || a.header.Get("Content-Encoding") != "" {
			t.Errorf("416: %+v", a)
		}
		if a := ask(t, addr, "GET", "/a.txt", fields("Accept-Encoding: gzip", "Range: bytes=10-19", "If-Range: "+tag)); a.status != 206 || a.body != gz.body[10:20] {
			t.Errorf("206: %d %v", a.status, a.header)
		}
		if a := ask(t, addr, "GET", "/a.txt", fields("Accept-Encoding: gzip", "Range: bytes=10-19", "If-Range: "+plain.header.Get("Etag"))); a.status != 200 || a.body != gz.body {
			t.Errorf("a range of another representation: %d %v", a.status, a.header)
		}
		if a := ask(t, addr, "GET", "/beside.css", accept); unzip(t, a.body) != "made by somebody" || a.header.Get("Content-Type") != "text/css; charset=utf-8" {
			t.Errorf("with a compressed file: %v", a.header)
		}
		if a := ask(t, addr, "GET", "/stale.css", accept); unzip(t, a.body) != text {
			t.Errorf("stale: %v", a.header)
		}
		for path, body := range map[string]string{"/small.txt": "short", "/a.jpg": text, "/noise.txt": string(noise)} {
			if a := ask(t, addr, "GET", path, accept); a.header.Get("Content-Encoding") != "" || a.body != body {
				t.Errorf("%s: %v", path, a.header)
			}
		}
	}
	if a := ask(t, start(t, dir, Options{NoGzip: true}), "GET", "/a.txt", accept); a.body != text || a.header.Get("Vary") != "" {
		t.Errorf("not wanted: %v", a.header)
	}
}

func TestAcceptsGzip(t *testing.T) {
	for in, want := range map[string]bool{
		"": false, "gzip": true, "GZIP": true, "x-gzip": true, "deflate, gzip;q=0.5, br": true, "gzip;q=0": false, "*": true, "*;q=0": false, "gzip;q=0, *": false,
		"identity": false, "identity;q=1, gzip;q=0.5": false, "identity;q=0.2, gzip;q=0.5": true, "gzip;q=x": false, "gzip ; Q=0.1": true, "gzip;q=NaN": false, "gzip;q=2": false, "br": false,
	} {
		if got := acceptsGzip([]string{in}); got != want {
			t.Errorf("%q: %v", in, got)
		}
	}
	if acceptsGzip(nil) || !acceptsGzip([]string{"br", "gzip"}) {
		t.Error("fields")
	}
}

func TestGzipCache(t *testing.T) {
	c, made := newGzipCache(), 0
	big := func() ([]byte, bool) { made++; return make([]byte, gzipKeep/4), true }
	key := func(i int64) gzipKey { return gzipKey{"n", fileState{size: i}} }
	for i := range int64(6) {
		c.get(key(i), big)
	}
	if c.bytes > gzipKeep || len(c.entries) != c.recent.Len() || c.entries[key(5)] == nil || c.entries[key(0)] != nil {
		t.Errorf("the cache has %d bytes in %d entries", c.bytes, len(c.entries))
	}
	if c.get(key(5), big) == nil || made != 6 {
		t.Errorf("made %d", made)
	}
	if c.get(key(9), func() ([]byte, bool) { return nil, false }) != nil || c.entries[key(9)] != nil || len(c.busy) != 0 {
		t.Error("a failed compression was cached")
	}
	again := 0
	for range 2 { // A file that does not shrink is remembered.
		c.get(key(10), func() ([]byte, bool) { again++; return nil, true })
	}
	if again != 1 {
		t.Errorf("tried %d times", again)
	}
}

// TestChanges checks that the current content is served although an older file is open.
func TestChanges(t *testing.T) {
	dir := tree(t, map[string]string{"f.txt": "one"})
	h, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	addr, path := serve(t, h), filepath.Join(dir, "f.txt")
	want := func(status int, body string) {
		t.Helper()
		for range 2 {
			if a := ask(t, addr, http.MethodGet, "/f.txt", nil); a.status != status || status == 200 && a.body != body {
				t.Errorf("got %d %q, want %d %q", a.status, a.body, status, body)
			}
		}
	}
	want(200, "one")
	os.WriteFile(path, []byte("longer"), 0o644)
	want(200, "longer")
	os.WriteFile(path+"2", []byte("replaced"), 0o644)
	if err := os.Rename(path+"2", path); err != nil {
		t.Fatal(err)
	}
	want(200, "replaced")
	os.Remove(path)
	want(404, "")
	os.WriteFile(path, []byte("back"), 0o644)
	want(200, "back")
	h.files.sweep()
	h.files.mu.Lock()
	left := len(h.files.files)
	h.files.mu.Unlock()
	if left != 0 {
		t.Error("files are still kept")
	}
	want(200, "back")
}

// TestTagsOfReplacedFiles requests a file with the entity tag of an earlier file of the same size
// and modification time.
func TestTagsOfReplacedFiles(t *testing.T) {
	dir := tree(t, nil)
	h, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	addr, path, at := serve(t, h), filepath.Join(dir, "f.txt"), time.Unix(1_700_000_000, 0)
	tags := make(map[string]string)
	last := ""
	for _, body := range []string{strings.Repeat("a", 5000), strings.Repeat("b", 5000), strings.Repeat("c", 5000)} {
		next := filepath.Join(dir, "next")
		err := errors.Join(os.WriteFile(next, []byte(body), 0o644), os.Chtimes(next, at, at), os.Rename(next, path))
		if err != nil {
			t.Fatal(err)
		}
		if last != "" {
			if a := ask(t, addr, http.MethodGet, "/f.txt", fields("If-None-Match: "+last)); a.status != 200 || a.body != body {
				t.Errorf("If-None-Match with the old tag: %d, %.1q", a.status, a.body)
			}
			if a := ask(t, addr, http.MethodGet, "/f.txt", fields("Range: bytes=10-19", "If-Range: "+last)); a.status != 200 || a.body != body {
				t.Errorf("If-Range with the old tag: %d, %.1q", a.status, a.body)
			}
		}
		for _, accept := range []string{"identity", "gzip"} {
			a := ask(t, addr, http.MethodGet, "/f.txt", fields("Accept-Encoding: "+accept))
			tag := a.header.Get("Etag")
			if other, ok := tags[tag]; ok {
				t.Errorf("the tag %s is that of %.1q and of %.1q (%s)", tag, other, body, accept)
			}
			tags[tag] = body
			if accept == "identity" {
				last = tag
			}
		}
		if a := ask(t, addr, http.MethodGet, "/f.txt", fields("If-None-Match: "+last)); a.status != 304 {
			t.Errorf("If-None-Match with its own tag: %d", a.status)
		}
	}
}

// TestGzipOfReplacedFiles compares compressed responses with http.FileServer, while the file is
// repeatedly replaced by another of the same size and time.
func TestGzipOfReplacedFiles(t *testing.T) {
	for name, settle := range map[string]time.Duration{"kept": -time.Hour, "as it is": settleTime} {
		t.Run(name, func(t *testing.T) {
			defer func(d time.Duration) { settleTime = d }(settleTime)
			settleTime = settle
			dir, olds := t.TempDir(), t.TempDir()
			h, err := Open(dir, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			ours, theirs := serve(t, h), serve(t, http.FileServer(http.Dir(dir)))
			path := filepath.Join(dir, "f.txt")
			for i := range 40 {
				text := strings.Repeat(fmt.Sprintf("text number %06d. ", i), 200)
				next := filepath.Join(olds, fmt.Sprint(i))
				if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
				if err := os.Chtimes(next, stamp, stamp); err != nil {
					t.Fatal(err)
				}
				switch {
				case i%3 == 0 || settle < 0: // a link keeps the inodes of all files in use
					_ = os.Remove(path)
					err = os.Link(next, path)
				case i%3 == 1:
					err = os.Rename(next, path)
				default: // in place, at the same moment
					if err = os.WriteFile(path, []byte(text), 0o644); err == nil {
						err = os.Chtimes(path, stamp, stamp)
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				for range 2 {
					a := ask(t, ours, "GET", "/f.txt", fields("Accept-Encoding: gzip"))
					if a.header.Get("Content-Encoding") != "gzip" {
						t.Fatalf("%v", a.header)
					}
					if got, want := unzip(t, a.body), ask(t, theirs, "GET", "/f.txt", nil).body; got != want {
						t.Fatalf("file %d: got %q, want %q", i, got[:20], want[:20])
					}
				}
			}
			h.zip.mu.Lock()
			kept := len(h.zip.entries)
			h.zip.mu.Unlock()
			if (kept > 0) != (settle < 0) {
				t.Errorf("%d compressed files are kept", kept)
			}
		})
	}
}

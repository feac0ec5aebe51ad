// SPDX-License-Identifier: MIT

package fileserver

import (
	"bytes"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringside-io/ringside/unet"
)

// stamp is the modification time of all test files.
var stamp = time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC)

// tree makes a directory with these files.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, stamp, stamp); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// start serves a directory and returns the address.
func start(t *testing.T, dir string, o Options) string {
	t.Helper()
	h, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return serve(t, h)
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	ln, err := unet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(h, quiet)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		s.http.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

// answer is the part of a response that a client sees.
type answer struct {
	status int
	header http.Header
	body   string
}

func ask(t *testing.T, addr, method, path string, header http.Header) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(req.Header, header)
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Errorf("%s %s %v: %v", method, path, header, err)
	}
	return answer{res.StatusCode, res.Header, string(body)}
}

// client sends only the given headers, on a kept connection.
var client = &http.Client{
	Transport:     &http.Transport{DisableCompression: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

var boundary = regexp.MustCompile(`[0-9a-f]{60}`)

// comparable removes what must differ.
func (a answer) comparable() answer {
	h := maps.Clone(a.header)
	for _, name := range []string{"Date", "Vary", "X-Content-Type-Options"} {
		h.Del(name)
	}
	for name, values := range h {
		h[name] = slices.Clone(values)
		for i, v := range values {
			h[name][i] = boundary.ReplaceAllString(v, "B")
		}
	}
	body := a.body
	if a.status >= 400 {
		body = "an error" // the text is that of this server
		h.Del("Content-Length")
	}
	return answer{a.status, h, boundary.ReplaceAllString(body, "B")}
}

func fields(lines ...string) http.Header {
	h := http.Header{}
	for _, l := range lines {
		name, value, _ := strings.Cut(l, ": ")
		h.Add(name, value)
	}
	return h
}

// TestLikeFileServer compares the responses with those of net/http.
func TestLikeFileServer(t *testing.T) {
	long := strings.Repeat("ghijklmnopqrstuv", smallMax/8)
	dir := tree(t, map[string]string{
		"small.txt": "twenty bytes of text", "empty.txt": "", "long.bin": long, "limit.jpg": long[:smallMax], "noext": "<html>guess", "späte.css": "a{}",
		"sub/index.html": "<h1>index</h1>", "sub/deeper/file.json": "{}", "a b?.txt": "odd",
	})
	ours := start(t, dir, Options{NoGzip: true})
	h, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	referee := http.FileServer(http.Dir(dir))
	theirs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// net/http uses the entity tag of a response, and makes none itself.
		if name, err := h.name(r.URL.Path); err == nil {
			if strings.HasSuffix(r.URL.Path, "/") {
				name = filepath.Join(name, indexPage)
			}
			if f, err := h.open(name); err == nil {
				if f.etag != nil && !strings.HasSuffix(r.URL.Path, "/"+indexPage) && (!strings.HasSuffix(r.URL.Path, "/") || filepath.Base(name) == indexPage) {
					w.Header()["Etag"] = f.etag
				}
				f.close()
			}
		}
		referee.ServeHTTP(w, r)
	}))
	defer theirs.Close()
	tag := ask(t, ours, "GET", "/small.txt", nil).header.Get("Etag")
	if !strings.HasPrefix(tag, `"`) {
		t.Fatalf("tag %q", tag)
	}
	date := stamp.Format(http.TimeFormat)
	earlier, later := stamp.Add(-time.Hour).Format(http.TimeFormat), stamp.Add(time.Hour).Format(http.TimeFormat)
	conditions := []http.Header{
		nil,
		fields("Range: bytes=0-0"), fields("Range: bytes=3-7"), fields("Range: bytes=5-"), fields("Range: bytes=-4"),
		fields("Range: bytes=0-99999999"), fields("Range: bytes=99999999-"), fields("Range: bytes=7-3"), fields("Range: lines=1-2"), fields("Range: bytes=x"),
		fields("Range: bytes=0-1,4-5"), fields("Range: bytes=0-1, -2, 9-12"), fields("Range: bytes=0-,0-,0-"), fields("Range: bytes=99999999-,0-1"),
		fields("If-Modified-Since: " + date), fields("If-Modified-Since: " + earlier), fields("If-Modified-Since: " + later), fields("If-Modified-Since: tomorrow"),
		fields("If-Unmodified-Since: " + date), fields("If-Unmodified-Since: " + earlier),
		fields("If-None-Match: " + tag), fields("If-None-Match: *"), fields(`If-None-Match: "x", ` + tag), fields(`If-None-Match: W/` + tag), fields(`If-None-Match: "x"`, "If-Modified-Since: "+date),
		fields("If-Match: " + tag), fields("If-Match: *"), fields(`If-Match: "x"`), fields("If-Match: W/" + tag),
		fields("Range: bytes=3-7", "If-Range: "+tag), fields("Range: bytes=3-7", `If-Range: "x"`), fields("Range: bytes=3-7", "If-Range: "+date), fields("Range: bytes=3-7", "If-Range: "+earlier),
		fields("Range: bytes=3-7", "If-None-Match: "+tag), fields("Range: bytes=3-70000"), fields("Range: bytes=1-70000,3-80000"),
	}
	for _, path := range []string{
		"/small.txt", "/empty.txt", "/long.bin", "/limit.jpg", "/noext", "/sp%C3%A4te.css", "/sub/", "/sub", "/sub?q=1", "/sub/index.html", "/a%20b%3F.txt",
		"/small.txt/", "/small.txt/?q=1", "/sub/deeper/file.json", "/sub/deeper", "/sub/../small.txt", "/sub%2Fdeeper%2ffile.json", "//small.txt", "/./sub/./", "/sub/.", "/sub/deeper/..", "/nothing", "/nothing/",
		"/small.txt/below", "/" + strings.Repeat("x", 200),
	} {
		headers := []http.Header{nil, fields("Range: bytes=3-7"), fields("If-Modified-Since: " + date), fields("If-None-Match: *")}
		if slices.Contains([]string{"/small.txt", "/long.bin", "/sub/"}, path) {
			headers = conditions
		}
		for _, header := range headers {
			for _, method := range []string{"GET", "HEAD"} {
				got := ask(t, ours, method, path, header).comparable()
				want := ask(t, theirs.Listener.Addr().String(), method, path, header).comparable()
				if strings.Contains(path, "deeper") && want.status == 200 && strings.Contains(want.body, "<pre>") {
					continue // a list
				}
				if got.status != want.status || got.body != want.body || !equalHeaders(got.header, want.header) {
					t.Errorf("%s %s %v:\n got %d %v %.60q\nwant %d %v %.60q", method, path, header, got.status, got.header, got.body, want.status, want.header, want.body)
				}
			}
		}
	}
}

func equalHeaders(a, b http.Header) bool {
	return maps.EqualFunc(a, b, func(x, y []string) bool { return slices.Equal(x, y) })
}

// TestKeepsConnections requests files of all lengths on one connection, one after another and
// pipelined.
func TestKeepsConnections(t *testing.T) {
	files := map[string]string{}
	for _, n := range []int{0, 1, 511, 512, 513, 2048, 4095, 4096, smallMax - 1, smallMax, smallMax + 1, 3 << 19} {
		files[strings.Repeat("f", 1+len(files))+".jpg"] = strings.Repeat("x", n)
	}
	addr := start(t, tree(t, files), Options{})
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	names := slices.Sorted(maps.Keys(files))
	go func() {
		for range 3 {
			for _, name := range names {
				io.WriteString(c, "GET /"+name+" HTTP/1.1\r\nHost: h\r\n\r\n")
			}
		}
	}()
	in := newReader(c)
	for range 3 {
		for _, name := range names {
			res, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(name, err)
			}
			var body bytes.Buffer
			if _, err := body.ReadFrom(res.Body); err != nil || body.String() != files[name] {
				t.Fatalf("%s: got %d of %d bytes, %v", name, body.Len(), len(files[name]), err)
			}
		}
	}
}

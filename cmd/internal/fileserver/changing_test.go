// SPDX-License-Identifier: MIT

package fileserver

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// huge is more than the buffers of two sockets hold, so that a server is still sending when the client has read
// the header.
const huge = 16 << 20

// download is a response whose header has been read.
type download struct {
	*http.Response
	conn net.Conn
}

// begin requests a file and reads the header of the response.
func begin(t *testing.T, addr, path string) download {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: h\r\n\r\n")
	res, err := http.ReadResponse(newReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	return download{res, c}
}

// allIs reads and compares the rest; it returns how many bytes were read.
func allIs(t *testing.T, r io.Reader, want byte) (n int64, err error) {
	t.Helper()
	buf, same := make([]byte, 1<<20), bytes.Repeat([]byte{want}, 1<<20)
	for {
		m, err := r.Read(buf)
		if !bytes.Equal(buf[:m], same[:m]) {
			t.Errorf("wrong data after %d bytes", n)
		}
		if n += int64(m); err != nil {
			return n, err
		}
	}
}

// TestFileShrinks truncates a file while it is sent. The client must see that the response is
// incomplete, and the server must continue.
func TestFileShrinks(t *testing.T) {
	dir := tree(t, map[string]string{"big.jpg": strings.Repeat("x", huge), "other.txt": "text"})
	addr := start(t, dir, Options{})
	down := begin(t, addr, "/big.jpg")
	if err := os.Truncate(filepath.Join(dir, "big.jpg"), huge-1); err != nil {
		t.Fatal(err)
	}
	if n, err := allIs(t, down.Body, 'x'); n != huge-1 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%d bytes, %v", n, err)
	}
	if a := ask(t, addr, "GET", "/other.txt", nil); a.body != "text" {
		t.Errorf("%+v", a)
	}
	if a := ask(t, addr, "HEAD", "/big.jpg", nil); a.header.Get("Content-Length") != "16777215" {
		t.Errorf("%v", a.header)
	}
}

// TestFileGrowsOrIsReplaced checks that the announced content is sent although the file
// changes meanwhile.
func TestFileGrowsOrIsReplaced(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"grows": func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString("yyyy")
			return errors.Join(err, f.Close())
		},
		"replaced": func(path string) error {
			return errors.Join(os.WriteFile(path+"2", []byte("y"), 0o644), os.Rename(path+"2", path))
		},
		"removed": os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			dir := tree(t, map[string]string{"big.jpg": strings.Repeat("x", huge)})
			addr := start(t, dir, Options{})
			down := begin(t, addr, "/big.jpg")
			if err := change(filepath.Join(dir, "big.jpg")); err != nil {
				t.Skipf("while it is open: %v", err)
			}
			if n, err := allIs(t, down.Body, 'x'); n != huge || err != io.EOF {
				t.Errorf("%d bytes, %v", n, err)
			}
			// The connection continues with the next response.
			io.WriteString(down.conn, "GET /big.jpg HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
			res, err := http.ReadResponse(newReader(down.conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]int64{"grows": huge + 4, "replaced": 1, "removed": res.ContentLength}[name]
			if res.ContentLength != want || (res.StatusCode == 404) != (name == "removed") {
				t.Errorf("%s, %d bytes", res.Status, res.ContentLength)
			}
		})
	}
}

// TestSmallFileShrinks truncates a file after the server has read its size and before it
// reads the content.
func TestSmallFileShrinks(t *testing.T) {
	for _, left := range []int64{0, 7} {
		dir := tree(t, map[string]string{"f.jpg": strings.Repeat("x", 5000)})
		h, err := Open(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		addr := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			f, err := h.open("f.jpg")
			if err != nil {
				t.Error(err)
				return
			}
			defer f.close()
			if err := os.Truncate(filepath.Join(dir, "f.jpg"), left); err != nil {
				t.Error(err)
			}
			h.serve(&response{w, connOf(r)}, r, "f.jpg", f)
		}))
		down := begin(t, addr, "/f.jpg")
		if n, err := allIs(t, down.Body, 'x'); n != left || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("got %d of %d bytes, %v", n, left, err)
		}
	}
}

// SPDX-License-Identifier: MIT

package fileserver

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// AccessLog returns a handler that writes a line for each request to out when h has answered it: the
// combined log format of other servers. Text from a client is quoted as in Go, so that it cannot add
// lines. Lines are written one at a time.
func AccessLog(h http.Handler, out io.Writer) http.Handler {
	var mu sync.Mutex
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &counted{ResponseWriter: w, status: http.StatusOK}
		begin := time.Now()
		defer func() {
			host, _, err := net.SplitHostPort(r.RemoteAddr)
			if err != nil {
				host = "-"
			}
			line := fmt.Sprintf("%s - - [%s] %q %d %d %q %q\n", host, begin.Format("02/Jan/2006:15:04:05 -0700"),
				r.Method+" "+r.RequestURI+" "+r.Proto, c.status, c.bytes, orDash(r.Referer()), orDash(r.UserAgent()))
			mu.Lock()
			defer mu.Unlock()
			_, _ = io.WriteString(out, line) // a full disk does not stop the server
		}()
		h.ServeHTTP(c, r)
	})
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// counted is a response that records its status and the number of bytes of its body.
type counted struct {
	http.ResponseWriter
	status int
	bytes  int64
	wrote  bool
}

// WriteHeader implements http.ResponseWriter.
func (c *counted) WriteHeader(status int) {
	if !c.wrote && status >= http.StatusOK {
		c.status, c.wrote = status, true
	}
	c.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer.
func (c *counted) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.bytes += int64(n)
	return n, err
}

// ReadFrom implements io.ReaderFrom by that of the counted response.
func (c *counted) ReadFrom(r io.Reader) (int64, error) {
	n, err := io.Copy(c.ResponseWriter, r)
	c.bytes += n
	return n, err
}

// Unwrap is for http.ResponseController.
func (c *counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }

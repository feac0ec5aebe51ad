// SPDX-License-Identifier: MIT

package server

import (
	"bytes"
	"net/http"

	"github.com/ringside-io/ringside/unet/event/framing"
)

var (
	greeting = []byte("Hello from a loop.\n")
	large    = bytes.Repeat([]byte("0123456789abcde\n"), 16<<10)
)

// respond appends the answer to r.
func respond(out []byte, r *framing.Request) []byte {
	code, body := route(r), greeting
	if string(r.Target) == "/large" {
		body = large
	}
	fields := []string{"Server", "http-watch", "Content-Type", "text/plain; charset=utf-8", "Allow", "GET, HEAD, POST"}
	if code != http.StatusOK {
		body = []byte(http.StatusText(code) + "\n")
	}
	if code != http.StatusMethodNotAllowed {
		fields = fields[:4]
	}
	return r.AppendResponse(out, code, body, fields...)
}

// route returns the code of the answer to a request.
func route(r *framing.Request) int {
	switch string(r.Method) {
	case "GET", "HEAD", "POST":
	default:
		return http.StatusMethodNotAllowed
	}
	if p := string(r.Target); p != "/" && p != "/large" {
		return http.StatusNotFound
	}
	return http.StatusOK
}

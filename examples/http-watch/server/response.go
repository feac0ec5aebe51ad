// SPDX-License-Identifier: MIT

package server

import (
	"bytes"
	"net/http"
	"strconv"
	"time"
)

var (
	greeting = []byte("Hello from a loop.\n")
	large    = bytes.Repeat([]byte("0123456789abcde\n"), 16<<10)
)

// clock makes the Date field, once a second.
type clock struct {
	second int64
	date   []byte
}

func (c *clock) append(out []byte) []byte {
	if now := time.Now(); now.Unix() != c.second || c.date == nil {
		c.second = now.Unix()
		c.date = now.UTC().AppendFormat(c.date[:0], http.TimeFormat)
	}
	return append(out, c.date...)
}

// respond appends the answer to r.
func (c *clock) respond(out []byte, r *request) []byte {
	var body []byte
	switch code := route(r); code {
	case 0:
		if body = greeting; string(r.path) == "/large" {
			body = large
		}
		out = c.head(out, 200, len(body), r.keep, r.minor)
	default:
		body = errorBody(code)
		out = c.head(out, code, len(body), r.keep, r.minor)
	}
	if string(r.method) == "HEAD" {
		return out
	}
	return append(out, body...)
}

// route says what is wrong with a request that could be parsed.
func route(r *request) status {
	switch string(r.method) {
	case "GET", "HEAD", "POST":
	default:
		return 405
	}
	if p := string(r.path); p != "/" && p != "/large" {
		return 404
	}
	return 0
}

// refuse appends the answer to something that is not a request the server takes;
// the connection ends after it.
func (c *clock) refuse(out []byte, bad status) []byte {
	body := errorBody(bad)
	return append(c.head(out, bad, len(body), false, 1), body...)
}

func errorBody(code status) []byte { return []byte(http.StatusText(int(code)) + "\n") }

// head appends the head of an answer. A client of HTTP/1.0 has to be told that
// the connection is kept, one of HTTP/1.1 that it is not.
func (c *clock) head(out []byte, code status, length int, keep bool, minor byte) []byte {
	out = append(out, "HTTP/1.1 "...)
	out = strconv.AppendInt(out, int64(code), 10)
	out = append(out, ' ')
	out = append(out, http.StatusText(int(code))...)
	out = append(out, "\r\nServer: http-watch\r\nDate: "...)
	out = c.append(out)
	if code == 405 {
		out = append(out, "\r\nAllow: GET, HEAD, POST"...)
	}
	out = append(out, "\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: "...)
	out = strconv.AppendInt(out, int64(length), 10)
	if !keep {
		out = append(out, "\r\nConnection: close"...)
	} else if minor == 0 {
		out = append(out, "\r\nConnection: keep-alive"...)
	}
	return append(out, "\r\n\r\n"...)
}

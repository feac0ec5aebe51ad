// SPDX-License-Identifier: MIT

package framing

import (
	"bufio"
	"bytes"
	"errors"
	"math"
	"net/http"
	"strings"
	"testing"
)

const testHead = 8 << 10

// parse is ParseHead with the status code of the refusal, 0 without one.
func parse(b []byte) (Request, int, int) {
	r, n, err := ParseHead(b, testHead)
	var bad *StatusError
	if errors.As(err, &bad) {
		return r, n, bad.Code
	}
	return r, n, 0
}

// Promise: examples/request-servers-could
func TestParseHead(t *testing.T) {
	long := strings.Repeat("x", testHead)
	for _, c := range []struct {
		name, in string
		bad      int
		keep     bool
		length   int64
	}{
		{"1.1", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 0, true, 0},
		{"1.1, a later minor", "GET / HTTP/1.7\r\nHost: a\r\n\r\n", 0, true, 0},
		{"1.1 closes", "GET / HTTP/1.1\r\nHost: a\r\nconnection: x, CLOSE\r\nConnection: keep-alive\r\n\r\n", 0, false, 0},
		{"1.0", "GET / HTTP/1.0\r\n\r\n", 0, false, 0},
		{"1.0 keeps", "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", 0, true, 0},
		{"body", "POST / HTTP/1.0\r\nContent-Length:\t17 \r\n\r\n", 0, false, 17},
		{"empty lines before", "\r\n\r\nGET / HTTP/1.0\r\n\r\n", 0, false, 0},
		{"empty value", "GET / HTTP/1.0\r\nA:\r\n\r\n", 0, false, 0},

		{"no host", "GET / HTTP/1.1\r\n\r\n", 400, false, 0},
		{"two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400, false, 0},
		{"many empty lines", "\r\n\r\n\r\nGET / HTTP/1.0\r\n\r\n", 400, false, 0},
		{"no version", "GET /\r\n\r\n", 400, false, 0},
		{"no path", "GET  HTTP/1.1\r\nHost: a\r\n\r\n", 400, false, 0},
		{"two spaces", "GET /  HTTP/1.1\r\nHost: a\r\n\r\n", 400, false, 0},
		{"small letters", "GET / http/1.1\r\nHost: a\r\n\r\n", 400, false, 0},
		{"bad version", "GET / HTTP/1,1\r\nHost: a\r\n\r\n", 400, false, 0},
		{"version 2", "PRI * HTTP/2.0\r\n\r\n", 505, false, 0},
		{"bad method", "G(T / HTTP/1.0\r\n\r\n", 400, false, 0},
		{"control in path", "GET /\x7f HTTP/1.0\r\n\r\n", 400, false, 0},
		{"line feed in path", "GET /\nA: b HTTP/1.0\r\n\r\n", 400, false, 0},
		{"no colon", "GET / HTTP/1.0\r\nA\r\n\r\n", 400, false, 0},
		{"space before colon", "GET / HTTP/1.0\r\nContent-Length : 3\r\n\r\n", 400, false, 0},
		{"continued line", "GET / HTTP/1.0\r\nA: b\r\n c: d\r\n\r\n", 400, false, 0},
		{"line feed in value", "GET / HTTP/1.0\r\nA: b\nContent-Length: 3\r\n\r\n", 400, false, 0},
		{"zero in value", "GET / HTTP/1.0\r\nA: \x00\r\n\r\n", 400, false, 0},
		{"two lengths", "GET / HTTP/1.0\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n", 400, false, 0},
		{"no length", "GET / HTTP/1.0\r\nContent-Length:\r\n\r\n", 400, false, 0},
		{"signed length", "GET / HTTP/1.0\r\nContent-Length: +3\r\n\r\n", 400, false, 0},
		{"length list", "GET / HTTP/1.0\r\nContent-Length: 3, 3\r\n\r\n", 400, false, 0},
		{"large body", "GET / HTTP/1.0\r\nContent-Length: 99999999999999999999999999\r\n\r\n", 0, false, math.MaxInt64},
		{"chunks", "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 411, false, 0},
		{"chunks and length", "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", 400, false, 0},
		{"bare line feeds", "GET / HTTP/1.0\n\n", 400, false, 0},
		{"bare line feed in the head", "GET / HTTP/1.0\r\nA: b\nC: d", 400, false, 0},
		{"bare line feed at the end", "GET / HTTP/1.0\r\nA: b\n\n", 400, false, 0},
		{"bare carriage return", "GET / HTTP/1.0\r\nA: b\rC: d\r\n\r\n", 400, false, 0},
		{"two lengths that differ", "GET / HTTP/1.0\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", 400, false, 0},
		{"negative length", "GET / HTTP/1.0\r\nContent-Length: -3\r\n\r\n", 400, false, 0},
		{"hexadecimal length", "GET / HTTP/1.0\r\nContent-Length: 0x3\r\n\r\n", 400, false, 0},
		{"length with a space", "GET / HTTP/1.0\r\nContent-Length: 1 0\r\n\r\n", 400, false, 0},
		{"no name", "GET / HTTP/1.0\r\n: b\r\n\r\n", 400, false, 0},
		{"tab before colon", "GET / HTTP/1.0\r\nTransfer-Encoding\t: chunked\r\n\r\n", 400, false, 0},
		{"hidden chunks", "GET / HTTP/1.0\r\nTransfer-Encoding: \x0bchunked\r\n\r\n", 400, false, 0},
		{"unknown coding", "GET / HTTP/1.0\r\nTransfer-Encoding: xchunked\r\n\r\n", 501, false, 0},
		{"length and chunks", "GET / HTTP/1.0\r\nContent-Length: 3\r\nTransfer-Encoding: identity\r\n\r\n", 400, false, 0},
		{"continued first line", " GET / HTTP/1.0\r\n\r\n", 400, false, 0},
		{"continued first field", "GET / HTTP/1.0\r\n A: b\r\n\r\n", 400, false, 0},
		{"many fields", "GET / HTTP/1.0\r\n" + strings.Repeat("A:\r\n", testHead/4) + "\r\n", 431, false, 0},
		{"TLS", "\x16\x03\x01", 400, false, 0},
		{"long path", "GET /" + long, 431, false, 0},
		{"long value", "GET / HTTP/1.0\r\nA: " + long + "\r\n\r\n", 431, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, n, bad := parse([]byte(c.in + "next"))
			if bad != c.bad {
				t.Fatalf("status %d, want %d", bad, c.bad)
			}
			if bad != 0 {
				return
			}
			if n != len(c.in) || !r.Close != c.keep || r.Length != c.length {
				t.Errorf("consumed %d of %d bytes, keep %v, length %d", n, len(c.in), !r.Close, r.Length)
			}
			for i := range len(c.in) {
				if _, n, bad := parse([]byte(c.in[:i])); n != 0 || bad != 0 {
					t.Errorf("the first %d bytes: consumed %d, status %d", i, n, bad)
				}
			}
		})
	}
}

// TestHostOfTarget compares the host with that of net/http where the target names one, too: the
// field does not count then (RFC 9112, 3.2.2 and 3.3).
// Promise: unet/event/framing-http-net
func TestHostOfTarget(t *testing.T) {
	for line, want := range map[string]string{
		"GET /a?b=http://x/":         "field",
		"OPTIONS *":                  "field",
		"GET http://target/a":        "target",
		"GET http://target":          "target",
		"GET HTTP://target:81?a=b/c": "target:81",
		"GET a+1.b-c://[::1]:81/":    "[::1]:81",
		"GET file:///a":              "field",
		"CONNECT target:443":         "target:443",
		"CONNECT /path":              "field",
		"GET http://user@target/":    "", // refused: RFC 9110, 4.2.4
		"GET http://tar\"get/":       "",
		"GET ?a=http://target/":      "",
		"GET /../x://target/":        "field",
		"GET 1http://target/":        "",
		"GET ://target/":             "",
		"CONNECT http://target/":     "",
		"CONNECT user@target:443":    "",
		"GET http://[::1/":           "",
		"GET http://[::1]x/":         "",
		"GET http://target:x/":       "",
		"GET http://target/%zz":      "",
		"CONNECT [::1":               "",
		"GET /a%2":                   "",
		"GET /%zz?a=b":               "",
		"GET /%41?a=%zz":             "field",
	} {
		in := line + " HTTP/1.1\r\nHost: field\r\n\r\n"
		r, n, bad := parse([]byte(in))
		if want == "" {
			if bad != http.StatusBadRequest {
				t.Errorf("%q: status %d, host %q", line, bad, r.Host)
			}
			continue
		}
		theirs, err := http.ReadRequest(bufio.NewReader(strings.NewReader(in)))
		if err != nil || theirs.Host != want {
			t.Fatalf("%q: net/http: %+v, %v", line, theirs, err)
		}
		if n != len(in) || string(r.Host) != want {
			t.Errorf("%q: host %q, status %d, want %q", line, r.Host, bad, want)
		}
	}
	if _, _, bad := parse([]byte("GET http://target/ HTTP/1.1\r\nHost: a b\r\n\r\n")); bad != http.StatusBadRequest {
		t.Errorf("a field that is not a host: status %d", bad)
	}
}

// FuzzParseHead checks that net/http, which is more lenient, parses each accepted request
// in the same way, and that no part of a request is accepted.
// Promise: examples/request-servers-could
// Promise: unet/event/framing-http-net
func FuzzParseHead(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
	f.Add([]byte("GET http://b/x HTTP/1.1\r\nHost: a\r\n\r\n"))
	f.Add([]byte("CONNECT b:1 HTTP/1.1\r\nHost: a\r\n\r\n"))
	f.Add([]byte("POST /x HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\nabc"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, n, bad := parse(b)
		if n < 0 || n > len(b) || n > 0 && bad != 0 {
			t.Fatalf("consumed %d of %d bytes, status %d", n, len(b), bad)
		}
		if n == 0 {
			return
		}
		if _, m, bad := parse(b[:n-1]); m != 0 || bad != 0 {
			t.Fatalf("the request without its last byte: consumed %d, status %d", m, bad)
		}
		head := bytes.TrimLeft(b[:n], "\r\n")
		theirs, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
		if err != nil {
			return // net/http has more rules, such as those of host names
		}
		if string(r.Host) != theirs.Host {
			t.Errorf("%q: host %q; net/http: %q", head, r.Host, theirs.Host)
		}
		if string(r.Method) != theirs.Method || r.Length != theirs.ContentLength || !r.Close == theirs.Close && theirs.ProtoMinor < 2 {
			t.Errorf("%q: %s, length %d, keep %v; net/http: %s, %d, close %v", head, r.Method, r.Length, !r.Close,
				theirs.Method, theirs.ContentLength, theirs.Close)
		}
	})
}

// TestExpect sends expectations: only 100-continue is known, as to net/http.
func TestExpect(t *testing.T) {
	for value, want := range map[string]int{"100-continue": 0, "100-Continue , x": 0, "": 0, "x": http.StatusExpectationFailed} {
		in := "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nExpect: " + value + "\r\n\r\n"
		if r, _, got := parse([]byte(in)); got != want || r.Continue != (want == 0 && value != "") {
			t.Errorf("%q: status %d, Continue %v", value, got, r.Continue)
		}
	}
}

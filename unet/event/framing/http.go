// SPDX-License-Identifier: MIT

package framing

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"
)

// Request is an HTTP/1.0 or HTTP/1.1 request. Its slices are parts of the input and are
// valid as long as the input.
type Request struct {
	Method, Target []byte
	// Host is the host, and the port if there is one: of the target if that is a URL or, for
	// CONNECT, an address. The field Host does not count then. Otherwise it is that field.
	Host   []byte
	Minor  int   // minor version of HTTP/1: 0 or 1
	Length int64 // bytes of the body, from Content-Length
	Body   []byte
	// Stream is the writer of [HTTPOptions].Stream that has received the body, nil if Body has it.
	Stream io.Writer
	// Close reports that the connection ends after the response: the client asked for
	// that, or it uses HTTP/1.0 and did not ask for keep-alive. A handler may set it.
	Close bool
	// Continue reports that the client waits for [Continue] before it sends the body.
	Continue bool

	fields []byte
}

// StatusError is the error of a request that is refused.
type StatusError struct {
	Code   int // status code of the response
	Reason string
}

// Error implements error.
func (e *StatusError) Error() string { return fmt.Sprintf("framing: HTTP %d: %s", e.Code, e.Reason) }

func refused(code int, reason string) *StatusError { return &StatusError{code, reason} }

// Header returns the value of the first header field with that name, nil if there is
// none. Names are case-insensitive.
func (r *Request) Header(name string) []byte {
	for k, v := range r.Headers() {
		if is(k, name) {
			return v
		}
	}
	return nil
}

// Headers returns an iterator over the names and values of all header fields, in their
// order.
func (r *Request) Headers() iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		for rest := r.fields; len(rest) > 0; {
			var line []byte
			line, rest, _ = bytes.Cut(rest, crlf)
			name, value, _ := bytes.Cut(line, []byte(":"))
			if !yield(name, bytes.Trim(value, " \t")) {
				return
			}
		}
	}
}

// ParseHead parses the head of a request at the start of b and returns its length in
// bytes. The length is 0 if more data is needed. The head has up to most bytes. It is
// followed by the body of Length bytes, which the caller reads and limits.
//
// ParseHead is strict, because input that two parsers understand differently can be used
// to smuggle a request past one of them. The error is a [*StatusError]. Its code is 411
// for a chunked body, 417 for an unknown Expect, 431 for a head that is too long, 501 for another transfer coding,
// 505 for another version, and otherwise 400.
func ParseHead(b []byte, most int) (Request, int, error) { return parseHead(b, 0, most) }

// parseHead is ParseHead for a head whose end is not in the first seen bytes.
func parseHead(b []byte, seen, most int) (r Request, n int, err error) {
	start := 0
	for bytes.HasPrefix(b[start:], crlf) && start < 2*len(crlf) {
		start += len(crlf) // some clients send them after a body
	}
	from := max(start, seen-len(headEnd)+1)
	end := bytes.Index(b[min(from, len(b)):], headEnd)
	size := from + end + len(headEnd) - start
	switch {
	case end >= 0 && size <= most:
	case seen == 0 && badStart(b[start:]):
		return r, 0, refused(http.StatusBadRequest, "this is not HTTP")
	case len(b)-start >= most:
		return r, 0, refused(http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("the head is longer than %d bytes", most))
	case bareLineFeed(b[max(seen-1, 0):], seen == 0):
		return r, 0, refused(http.StatusBadRequest, "a line ends without a carriage return")
	default:
		return r, 0, nil
	}
	head := b[start : start+size-len(crlf)]
	line, fields, _ := bytes.Cut(head, crlf)
	if err := r.line(line); err != nil {
		return r, 0, err
	}
	if err := r.parseFields(fields); err != nil {
		return r, 0, err
	}
	return r, start + size, nil
}

var (
	crlf    = []byte("\r\n")
	headEnd = []byte("\r\n\r\n")
)

// badStart reports whether b cannot be the start of a request, so that peers with another
// protocol, such as TLS, are refused at once.
func badStart(b []byte) bool {
	for i, c := range b {
		if c == ' ' {
			return i == 0
		}
		if !isToken(c) && (c != '\r' || i > 0) {
			return true
		}
	}
	return false
}

// bareLineFeed reports whether a line ends without a carriage return, which some parsers
// accept and others do not. Unless b is the whole input, its first byte was checked before.
func bareLineFeed(b []byte, all bool) bool {
	for i := 0; ; i++ {
		k := bytes.IndexByte(b[i:], '\n')
		if k < 0 {
			return false
		}
		if i += k; i == 0 && all || i > 0 && b[i-1] != '\r' {
			return true
		}
	}
}

// line parses the request line.
func (r *Request) line(b []byte) error {
	method, rest, ok1 := bytes.Cut(b, []byte(" "))
	target, version, ok2 := bytes.Cut(rest, []byte(" "))
	if !ok1 || !ok2 || !isName(method) || len(target) == 0 {
		return refused(http.StatusBadRequest, "the first line is not that of a request")
	}
	for _, c := range target {
		if c <= ' ' || c >= 0x7f {
			return refused(http.StatusBadRequest, "the target has characters that it must not have")
		}
	}
	if _, isURL := authority(target); target[0] != '/' && string(target) != "*" && string(method) != http.MethodConnect && !isURL {
		return refused(http.StatusBadRequest, "the target is not a path, nor a URL")
	}
	if !parses(method, target) {
		return refused(http.StatusBadRequest, "the target is not a URL: its host or an escape is malformed")
	}
	if len(version) != len("HTTP/1.1") || !bytes.HasPrefix(version, []byte("HTTP/")) || version[6] != '.' ||
		!isDigit(version[5]) || !isDigit(version[7]) {
		return refused(http.StatusBadRequest, "the first line has no version")
	}
	if version[5] != '1' {
		return refused(http.StatusHTTPVersionNotSupported, "the version is not HTTP/1")
	}
	r.Method, r.Target, r.Minor = method, target, min(int(version[7]-'0'), 1)
	return nil
}

// parses reports whether net/http's server can parse the target.
func parses(method, target []byte) bool {
	if target[0] == '/' {
		path, _, _ := bytes.Cut(target, []byte("?"))
		for i := bytes.IndexByte(path, '%'); i >= 0; i = bytes.IndexByte(path, '%') {
			if path = path[i:]; len(path) < 3 || !isHex(path[1]) || !isHex(path[2]) {
				return false
			}
			path = path[3:]
		}
		return true
	}
	text := string(target)
	if string(method) == http.MethodConnect {
		text = "http://" + text
	}
	_, err := url.ParseRequestURI(text)
	return err == nil
}

// authority returns the part of a URL that names the host, and reports whether target is a URL.
func authority(target []byte) (host []byte, ok bool) {
	scheme, rest, ok := bytes.Cut(target, []byte("://"))
	if !ok || !isScheme(scheme) {
		return nil, false
	}
	if end := bytes.IndexAny(rest, "/?"); end >= 0 {
		rest = rest[:end]
	}
	return rest, true
}

// targetHost returns the host that the target names, nil if it names none (RFC 9112, 3.2).
func (r *Request) targetHost() []byte {
	if string(r.Method) == http.MethodConnect && r.Target[0] != '/' {
		return r.Target
	}
	host, _ := authority(r.Target)
	return host
}

// parseFields parses the fields after the request line.
func (r *Request) parseFields(b []byte) error {
	r.fields = b
	hosts, lengths := 0, 0
	var coding []byte
	keep, closes := false, false
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, crlf)
		name, value, ok := bytes.Cut(line, []byte(":"))
		value = bytes.Trim(value, " \t")
		if !ok || !isName(name) || !text(value) {
			return refused(http.StatusBadRequest, "a line of the head is not a field")
		}
		switch {
		case is(name, "Host"):
			hosts++
			r.Host = value
		case is(name, "Content-Length"):
			lengths++
			if r.Length, ok = size(value); !ok {
				return refused(http.StatusBadRequest, "Content-Length is not a length")
			}
		case is(name, "Transfer-Encoding"):
			coding = append(append(coding, value...), ',')
		case is(name, "Connection"):
			keep = keep || listed(value, "keep-alive")
			closes = closes || listed(value, "close")
		case is(name, "Expect"):
			if r.Continue = listed(value, "100-continue"); !r.Continue && len(value) > 0 {
				return refused(http.StatusExpectationFailed, "the expectation is not known")
			}
		}
	}
	validHost := hostname(r.Host)
	if host := r.targetHost(); len(host) > 0 {
		r.Host, validHost = host, validHost && hostname(host)
	}
	switch {
	case hosts > 1 || hosts == 0 && r.Minor == 1:
		return refused(http.StatusBadRequest, "there must be one field Host")
	case !validHost:
		return refused(http.StatusBadRequest, "Host is not a host")
	case lengths > 1 || coding != nil && lengths > 0:
		return refused(http.StatusBadRequest, "the length of the body is given more than once")
	case listed(coding, "chunked"):
		return refused(http.StatusLengthRequired, "chunked bodies are not taken")
	case coding != nil:
		return refused(http.StatusNotImplemented, "the coding of the body is not known")
	}
	r.Close = closes || r.Minor == 0 && !keep
	r.Continue = r.Continue && r.Minor == 1 && r.Length > 0
	return nil
}

// size parses the value of Content-Length.
func size(b []byte) (n int64, ok bool) {
	for _, c := range b {
		if !isDigit(c) {
			return 0, false
		}
		if d := int64(c - '0'); n > (math.MaxInt64-d)/10 {
			n = math.MaxInt64 // longer than any limit
		} else {
			n = n*10 + d
		}
	}
	return n, len(b) > 0
}

// listed reports whether a comma-separated list contains an option.
func listed(list []byte, option string) bool {
	for len(list) > 0 {
		var v []byte
		v, list, _ = bytes.Cut(list, []byte(","))
		if is(bytes.Trim(v, " \t"), option) {
			return true
		}
	}
	return false
}

// is compares case-insensitively.
func is(b []byte, s string) bool { return len(b) == len(s) && bytes.EqualFold(b, []byte(s)) }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isHex(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }

// isToken reports whether a character may be part of a name.
func isToken(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' ||
		bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), c) >= 0
}

func isName(b []byte) bool {
	for _, c := range b {
		if !isToken(c) {
			return false
		}
	}
	return len(b) > 0
}

func isScheme(b []byte) bool {
	for i, c := range b {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || !isDigit(c) && c != '+' && c != '-' && c != '.') {
			return false
		}
	}
	return len(b) > 0
}

// text reports whether a value has no control characters except tabs.
func text(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// hostname reports whether a value has only characters of a host and a port.
func hostname(b []byte) bool {
	for _, c := range b {
		if !isDigit(c) && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && bytes.IndexByte([]byte("!$%&'()*+,-.:;=[]_~"), c) < 0 {
			return false
		}
	}
	return true
}

// Continue is the interim response to send if [Request].Continue is set.
const Continue = "HTTP/1.1 100 Continue\r\n\r\n"

// AppendResponse appends a response to dst and returns the extended slice. header
// contains pairs of field names and values. AppendResponse sets Content-Length, Date and
// Connection. Line ends in values become spaces. Responses to HEAD requests, and
// responses with the codes 204 and 304, have no body.
func (r *Request) AppendResponse(dst []byte, code int, body []byte, header ...string) []byte {
	dst = append(dst, "HTTP/1.1 "...)
	dst = strconv.AppendInt(dst, int64(code), 10)
	dst = append(dst, ' ')
	dst = append(dst, http.StatusText(code)...)
	dst = append(dst, "\r\nDate: "...)
	dst = appendDate(dst)
	for i := 0; i+1 < len(header); i += 2 {
		dst = append(dst, crlf...)
		dst = append(dst, header[i]...)
		dst = append(dst, ": "...)
		at := len(dst)
		dst = append(dst, header[i+1]...)
		for ; at < len(dst); at++ {
			if dst[at] == '\r' || dst[at] == '\n' {
				dst[at] = ' '
			}
		}
	}
	none := code == http.StatusNoContent || code == http.StatusNotModified
	if !none {
		dst = append(dst, "\r\nContent-Length: "...)
		dst = strconv.AppendInt(dst, int64(len(body)), 10)
	}
	if r.Close {
		dst = append(dst, "\r\nConnection: close"...)
	} else if r.Minor == 0 {
		dst = append(dst, "\r\nConnection: keep-alive"...)
	}
	dst = append(dst, headEnd...)
	if none || string(r.Method) == http.MethodHead {
		return dst
	}
	return append(dst, body...)
}

// AppendRefusal appends the response to a request that is refused because of err, and
// returns the extended slice. The code is the code of a [*StatusError], otherwise 400.
// The connection should end after the response.
func AppendRefusal(dst []byte, err error) []byte {
	e := refused(http.StatusBadRequest, "")
	errors.As(err, &e)
	r := Request{Close: true, Minor: 1}
	return r.AppendResponse(dst, e.Code, []byte(http.StatusText(e.Code)+"\n"), "Content-Type", "text/plain; charset=utf-8")
}

// date caches the Date field of the current second.
var date atomic.Pointer[struct {
	second int64
	text   string
}]

func appendDate(dst []byte) []byte {
	now := time.Now()
	d := date.Load()
	if d == nil || d.second != now.Unix() {
		d = &struct {
			second int64
			text   string
		}{now.Unix(), now.UTC().Format(http.TimeFormat)}
		date.Store(d)
	}
	return append(dst, d.text...)
}

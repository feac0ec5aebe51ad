// SPDX-License-Identifier: MIT

package server

import "bytes"

const (
	maxHead = 8 << 10 // bytes of a request before its body
	maxBody = 1 << 20
)

// request is what the server has to know of one. Its slices are parts of the
// input.
type request struct {
	method, path []byte
	minor        byte  // of the version 1.minor
	keep         bool  // the connection goes on after the answer
	closes       bool  // the client wants it to end, whatever else it says
	expect       bool  // the client waits to be told to send the body
	length       int64 // of the body
}

// status is an answer that is not 200; 0 means that all is well.
type status int

// parse takes the head of a request off b, and returns its length: 0 when more
// has to come. It is strict, because what two parsers understand differently can
// be used to smuggle a request past one of them.
func parse(b []byte) (r request, n int, bad status) {
	start := 0
	for bytes.HasPrefix(b[start:], crlf) && start < 2*len(crlf) {
		start += len(crlf) // some clients send them after a body
	}
	end := bytes.Index(b[start:min(len(b), start+maxHead)], headEnd)
	if end < 0 {
		switch {
		case len(b)-start >= maxHead:
			return r, 0, 431
		case badStart(b[start:]), bareLineFeed(b[start:]):
			return r, 0, 400
		}
		return r, 0, 0
	}
	head := b[start : start+end+len(crlf)]
	line, head, _ := bytes.Cut(head, crlf)
	if bad := r.line(line); bad != 0 {
		return r, 0, bad
	}
	if bad := r.fields(head); bad != 0 {
		return r, 0, bad
	}
	return r, start + end + len(headEnd), 0
}

var (
	crlf    = []byte("\r\n")
	headEnd = []byte("\r\n\r\n")
)

// badStart reports whether b cannot become a request any more, so that peers that
// speak something else, such as TLS, are told at once.
func badStart(b []byte) bool {
	for _, c := range b {
		if c == ' ' {
			return false
		}
		if !isToken(c) && c != '\r' {
			return true
		}
	}
	return false
}

// bareLineFeed reports whether a line ends without a carriage return, which some
// parsers take for an end and others do not.
func bareLineFeed(b []byte) bool {
	for i := bytes.IndexByte(b, '\n'); i >= 0; {
		if i == 0 || b[i-1] != '\r' {
			return true
		}
		b = b[i+1:]
		i = bytes.IndexByte(b, '\n')
	}
	return false
}

// line parses the first line.
func (r *request) line(b []byte) status {
	var version []byte
	var ok1, ok2 bool
	r.method, b, ok1 = bytes.Cut(b, []byte(" "))
	r.path, version, ok2 = bytes.Cut(b, []byte(" "))
	if !ok1 || !ok2 || !token(r.method) || len(r.path) == 0 {
		return 400
	}
	for _, c := range r.path {
		if c <= ' ' || c == 0x7f {
			return 400
		}
	}
	if len(version) != len("HTTP/1.1") || !bytes.HasPrefix(version, []byte("HTTP/")) || version[6] != '.' ||
		!isDigit(version[5]) || !isDigit(version[7]) {
		return 400
	}
	if version[5] != '1' {
		return 505
	}
	r.minor = min(version[7]-'0', 1)
	r.keep = r.minor == 1
	return 0
}

// fields parses the lines after the first.
func (r *request) fields(b []byte) status {
	hosts, lengths, coded := 0, 0, false
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, crlf)
		name, value, ok := bytes.Cut(line, []byte(":"))
		value = bytes.Trim(value, " \t")
		if !ok || !token(name) || !text(value) {
			return 400
		}
		switch {
		case is(name, "Host"):
			hosts++
		case is(name, "Content-Length"):
			lengths++
			if bad := r.size(value); bad != 0 {
				return bad
			}
		case is(name, "Transfer-Encoding"):
			coded = true
		case is(name, "Connection"):
			r.connection(value)
		case is(name, "Expect"):
			r.expect = is(value, "100-continue")
		}
	}
	switch {
	case hosts > 1 || hosts == 0 && r.minor == 1 || lengths > 1 || coded && lengths > 0:
		return 400
	case coded:
		return 501 // a body whose end this server does not find
	}
	r.keep = r.keep && !r.closes
	return 0
}

// size parses the length of the body.
func (r *request) size(b []byte) status {
	if len(b) == 0 {
		return 400
	}
	r.length = 0
	for _, c := range b {
		if !isDigit(c) {
			return 400
		}
		r.length = min(r.length*10+int64(c-'0'), maxBody+1)
	}
	if r.length > maxBody {
		return 413
	}
	return 0
}

// connection looks for the options close and keep-alive.
func (r *request) connection(list []byte) {
	for len(list) > 0 {
		var option []byte
		option, list, _ = bytes.Cut(list, []byte(","))
		switch option = bytes.Trim(option, " \t"); {
		case is(option, "close"):
			r.closes = true
		case is(option, "keep-alive"):
			r.keep = true
		}
	}
}

// is compares without regard to the case of letters.
func is(b []byte, s string) bool { return len(b) == len(s) && bytes.EqualFold(b, []byte(s)) }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// isToken reports whether a character may be part of a name.
func isToken(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' ||
		bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), c) >= 0
}

func token(b []byte) bool {
	for _, c := range b {
		if !isToken(c) {
			return false
		}
	}
	return len(b) > 0
}

// text reports whether a value has no control characters but tabs.
func text(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

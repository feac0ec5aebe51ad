// SPDX-License-Identifier: MIT

package loadgen

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
)

// request is the HTTP request that each connection sends, with the required headers only.
func (j Job) request() string {
	if j.Body > 0 {
		return fmt.Sprintf("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", j.Body, pattern(make([]byte, j.Body)))
	}
	return "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
}

// answer is the response of an HTTP server. It is the same each time except for the date, which has
// a fixed length.
type answer struct {
	text       []byte
	date, rest int // text[date:rest] is the date
}

// learn makes one request to get the answer.
func learn(ctx context.Context, network, addr, request string) (*answer, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	if _, err := io.WriteString(c, request); err != nil {
		return nil, err
	}
	var text bytes.Buffer
	res, err := http.ReadResponse(bufio.NewReader(io.TeeReader(c, &text)), nil)
	if err != nil {
		return nil, fmt.Errorf("the server's answer: %w", err)
	}
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return nil, fmt.Errorf("the server's answer: %w", err)
	}
	if res.StatusCode != http.StatusOK || res.Close || res.ContentLength < 0 {
		return nil, fmt.Errorf("the server answers %q, and must keep the connection open and send Content-Length", res.Status)
	}
	return newAnswer(text.Bytes()), nil
}

func newAnswer(text []byte) *answer {
	a := &answer{text: text}
	if i := bytes.Index(text, []byte("\r\nDate: ")); i >= 0 {
		a.date = i + len("\r\nDate: ")
		a.rest = a.date + bytes.IndexByte(text[a.date:], '\r')
	}
	return a
}

var errChanged = errors.New("the server's response differs from the one before")

// compare compares p with the answer at an offset.
func (a *answer) compare(at int, p []byte) error {
	end := at + len(p)
	if !a.same(at, p, at, min(end, a.date)) || !a.same(at, p, max(at, a.rest), end) {
		return errChanged
	}
	return nil
}

// same reports whether the bytes between two offsets are unchanged. p begins at offset at.
func (a *answer) same(at int, p []byte, from, to int) bool {
	return from >= to || bytes.Equal(a.text[from:to], p[from-at:to-at])
}

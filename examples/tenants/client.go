// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// client is a connection to the service. It is simpler than net/http's client, because
// it shares the processors with the service.
type client struct {
	addr string
	c    net.Conn
	r    *bufio.Reader
	out  []byte
	body bytes.Buffer
}

func (c *client) close() {
	if c.c != nil {
		_ = c.c.Close()
		c.c = nil
	}
}

// ask sends a request and returns the status and the body of the answer. The body is
// valid until the next request. After an error the client uses a new connection.
func (c *client) ask(method, path string, body []byte) (int, []byte, error) {
	if c.c == nil {
		var err error
		if c.c, err = net.DialTimeout("tcp", c.addr, patience); err != nil {
			return 0, nil, err
		}
		c.r = bufio.NewReader(c.c)
	}
	code, answer, err := c.exchange(method, path, body)
	if err != nil {
		c.close()
	}
	return code, answer, err
}

func (c *client) exchange(method, path string, body []byte) (int, []byte, error) {
	if err := c.c.SetDeadline(time.Now().Add(2 * patience)); err != nil {
		return 0, nil, err
	}
	c.out = fmt.Appendf(c.out[:0], "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n", method, path, c.addr, len(body))
	c.out = append(c.out, body...)
	if _, err := c.c.Write(c.out); err != nil {
		return 0, nil, err
	}
	res, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	c.body.Reset()
	if _, err := io.Copy(&c.body, res.Body); err != nil {
		return 0, nil, err
	}
	if res.Close {
		c.close()
	}
	return res.StatusCode, c.body.Bytes(), nil
}

// want sends a request and expects a status and, unless v is nil, JSON that fits v.
func (c *client) want(status int, method, path string, body []byte, v any) error {
	code, answer, err := c.ask(method, path, body)
	if err != nil {
		return err
	}
	if code != status {
		return fmt.Errorf("%s %s: status %d: %.200s", method, path, code, answer)
	}
	if v == nil {
		return nil
	}
	return json.Unmarshal(answer, v)
}

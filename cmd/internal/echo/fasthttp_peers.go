// SPDX-License-Identifier: MIT

//go:build peers

package echo

import (
	"bytes"
	"net"

	"github.com/valyala/fasthttp"
)

func init() {
	serveFast = func(ln net.Listener, s Setup) {
		body := bytes.Repeat([]byte("x"), s.HTTP)
		_ = fasthttp.Serve(ln, func(c *fasthttp.RequestCtx) { // until the listener is closed
			c.SetContentType("text/plain")
			c.SetBody(body)
		})
	}
}

// SPDX-License-Identifier: MIT

package echo

import (
	"bytes"
	"net"
	"net/http"
)

// serveHTTP answers each request with the same body.
func serveHTTP(ln net.Listener, s Setup) {
	body := bytes.Repeat([]byte("x"), s.HTTP)
	srv := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = textPlain
		_, _ = w.Write(body)
	})}
	_ = srv.Serve(ln) // until the listener is closed
}

// textPlain spares each answer a guess from its body.
var textPlain = []string{"text/plain"}

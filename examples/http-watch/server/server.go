// SPDX-License-Identifier: MIT

// Package server is the web server of the example http-watch: connections on one
// [watch.Loop]. It is a package so that a benchmark can run it too.
//
// It supports HTTP/1.0 and 1.1 with keep-alive and pipelining. It answers / with a
// greeting and /large with 256 KiB. Input that it cannot parse gets 400, and the
// connection is closed. The memory that a peer can occupy is bounded: the head of a
// request, the body, which is discarded, and the output, as nothing is read while a
// peer does not read its answers.
package server

import (
	"time"

	"github.com/ringside-io/ringside/watch"
)

const (
	maxHead = 8 << 10 // bytes of a request before its body
	maxBody = 1 << 20
)

// Config configures a server.
type Config struct {
	Addr  string        // where to listen on TCP
	Idle  time.Duration // how long a connection may go without an answer
	Watch watch.Options // how the loop waits; the zero value uses RINGSIDE_BACKEND
}

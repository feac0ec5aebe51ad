// SPDX-License-Identifier: MIT

// Package server is the web server of the example http-watch: connections on one
// [watch.Loop]. It is a package so that a benchmark can run it too.
//
// It speaks HTTP/1.0 and 1.1 with connections that are kept and requests that are
// sent before the answer to the last one; it answers / with a greeting and /large
// with 256 KiB. What it cannot parse gets 400 and a close. Everything that a peer
// makes it hold has a limit: the head of a request, the body, which it throws
// away, and the output, as nothing is read while a peer does not take its answers.
package server

import (
	"time"

	"github.com/ringside-io/ringside/watch"
)

const (
	maxHead = 8 << 10 // bytes of a request before its body
	maxBody = 1 << 20
)

// Config says how to serve.
type Config struct {
	Addr  string        // where to listen on TCP
	Idle  time.Duration // how long a connection may go without an answer
	Watch watch.Options // how the loop waits; empty leaves that to RINGSIDE_BACKEND
}

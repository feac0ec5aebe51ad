// SPDX-License-Identifier: MIT

// Command http-watch is a small web server on one event loop. RINGSIDE_WATCHER,
// which may be epoll, io_uring or auto, decides how the loop waits; the server
// is the same.
//
//	go run ./examples/http-watch -addr 127.0.0.1:8080
//
// It speaks HTTP/1.0 and 1.1 with connections that are kept and requests that are
// sent before the answer to the last one; it answers / with a greeting and /large
// with 256 KiB. What it cannot parse gets 400 and a close. Everything that a peer
// makes it hold has a limit: the head of a request, the body, which it throws
// away, and the output, as nothing is read while a peer does not take its answers.
// It is an example for [watch.Loop], not a replacement of package net/http.
package main

import (
	"flag"
	"log"
	"time"
)

// config is what the flags say.
type config struct {
	addr string
	idle time.Duration // how long a connection may go without progress
}

func main() {
	log.SetFlags(0)
	var c config
	flag.StringVar(&c.addr, "addr", "127.0.0.1:8080", "where to listen")
	flag.DurationVar(&c.idle, "idle", 30*time.Second, "how long a connection may go without an answer")
	flag.Parse()
	if err := serve(c); err != nil {
		log.Fatal("http-watch: ", err)
	}
}

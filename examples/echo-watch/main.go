// SPDX-License-Identifier: MIT

// Command echo-watch is an echo server on one event loop: it sends back what it
// is sent. RINGSIDE_BACKEND, which may be epoll, io_uring or auto, decides how
// the loop waits; the server is the same.
//
//	go run ./examples/echo-watch -addr 127.0.0.1:7007
//
// It shows what a server on [watch.Loop] consists of: descriptors that do not
// block, a callback for each connection, a timer for each, output that is kept
// until the peer takes it while nothing more is read, and an orderly end on a
// signal.
package main

import (
	"flag"
	"log"
	"time"
)

func main() {
	log.SetFlags(0)
	addr := flag.String("addr", "127.0.0.1:7007", "where to listen")
	idle := flag.Duration("idle", time.Minute, "how long a connection may do nothing")
	flag.Parse()
	if err := serve(*addr, *idle); err != nil {
		log.Fatal("echo-watch: ", err)
	}
}

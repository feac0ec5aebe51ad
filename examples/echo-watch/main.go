// SPDX-License-Identifier: MIT

// Command echo-watch is an echo server on one event loop. RINGSIDE_BACKEND, which
// may be epoll, io_uring or auto, decides how the loop waits; the server is the same.
//
//	go run ./examples/echo-watch -addr 127.0.0.1:7007
//
// It shows the parts of a server on [watch.Loop]: descriptors that do not
// block, a callback and a timer for each connection, output that is kept until
// the peer reads it while nothing more is read, and an orderly end on a signal.
package main

import (
	"flag"
	"log"
	"time"

	"github.com/ringside-io/ringside/examples/internal/options"
)

func main() {
	log.SetFlags(0)
	addr := flag.String("addr", "127.0.0.1:7007", "where to listen")
	idle := flag.Duration("idle", time.Minute, "how long a connection may do nothing")
	options.Parse()
	options.Require(*idle > 0, "-idle %v: must be more than 0", *idle)
	if err := serve(*addr, *idle); err != nil {
		log.Fatal("echo-watch: ", err)
	}
}

// SPDX-License-Identifier: MIT

// Command http-watch is a small web server on one event loop. RINGSIDE_BACKEND,
// which may be epoll, io_uring or auto, decides how the loop waits; the server
// is the same.
//
//	go run ./examples/http-watch -addr 127.0.0.1:8080
//
// The server is in package server, whose comment lists its features. It is an
// example for [watch.Loop], not a replacement for package net/http.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/examples/http-watch/server"
	"github.com/ringside-io/ringside/examples/internal/options"
)

func main() {
	log.SetFlags(0)
	var c server.Config
	flag.StringVar(&c.Addr, "addr", "127.0.0.1:8080", "where to listen")
	flag.DurationVar(&c.Idle, "idle", 30*time.Second, "how long a connection may go without an answer")
	options.Parse()
	options.Require(c.Idle > 0, "-idle %v: must be more than 0", c.Idle)
	if err := serve(c); err != nil {
		log.Fatal("http-watch: ", err)
	}
}

func serve(c server.Config) error {
	s, err := server.New(c)
	if err != nil {
		return err
	}
	defer s.Close()
	name, reason := s.Backend()
	log.Printf("listening on %v, waiting with %s: %s", s.Addr(), name, reason)
	s.ShutdownOn(os.Interrupt, syscall.SIGTERM)
	return s.Run(context.Background())
}

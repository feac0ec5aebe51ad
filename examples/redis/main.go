// SPDX-License-Identifier: MIT

// Command redis is a small key-value server that speaks RESP, the protocol of
// Redis, on package unet/event. redis-cli, redis-benchmark and client libraries
// work with it.
//
//	go run ./examples/redis -addr 127.0.0.1:6379
//	redis-cli set greeting hello
//
// It supports GET, SET, DEL, INCR, PING, ECHO and QUIT, as arrays and as inline commands
// (a line of words), and answers all other commands with an error. Commands may be
// pipelined. The memory that a peer can occupy is bounded: the request, the answers that
// the peer does not read, and all keys and values together. So is the time that a
// connection may go without a whole request.
//
// It shows the parts of a server on callbacks: requests that arrive in
// pieces, answers that are joined into one write, a peer that does not read, data
// that loops share, and an orderly end on a signal.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/examples/internal/options"
	"github.com/ringside-io/ringside/unet/event"
)

// grace is the time that connections have to finish at the end.
const grace = 800 * time.Millisecond

func main() {
	log.SetFlags(0)
	addr := flag.String("addr", "127.0.0.1:6379", "where to listen")
	mode := flag.String("mode", "auto", "auto, io_uring, epoll or net: see event.Mode")
	most := flag.Int64("max-memory", 256<<20, "how many bytes of keys and values to hold")
	idle := flag.Duration("idle", 5*time.Minute, "how long a connection may go without a whole request")
	options.Parse()
	options.Require(*idle > 0, "-idle %v: must be more than 0", *idle)
	options.Require(*most > 0, "-max-memory %d: must be more than 0", *most)
	if err := serve(*addr, *mode, *most, *idle); err != nil {
		log.Fatal("redis: ", err)
	}
}

// serve runs until a signal comes.
func serve(addr, mode string, most int64, idle time.Duration) error {
	m, err := modeOf(mode)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := event.Listen("tcp", addr, newServer(most, idle).handler(), event.Options{Mode: m})
	if err != nil {
		return err
	}
	name, reason := s.Backend()
	log.Printf("listening on %v, served by %s %s", s.Addr(), name, reason)
	<-ctx.Done()
	last, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := s.Shutdown(last); !errors.Is(err, context.DeadlineExceeded) { // slower clients are cut off
		return err
	}
	return nil
}

func modeOf(name string) (event.Mode, error) {
	for _, m := range []event.Mode{event.ModeAuto, event.ModeRing, event.ModeEpoll, event.ModeNet} {
		if m.String() == name {
			return m, nil
		}
	}
	return 0, fmt.Errorf("unknown mode %q: want auto, io_uring, epoll or net", name)
}

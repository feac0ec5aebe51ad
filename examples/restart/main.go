// SPDX-License-Identifier: MIT

// Command restart is an HTTP server that replaces itself by a new process without
// losing a request.
//
//	go build ./examples/restart
//	./restart -addr 127.0.0.1:8080
//	curl -i http://127.0.0.1:8080/
//	kill -HUP PID    # PID is the header Process of each response
//
// On SIGHUP it starts the program at the same path, which may be a newer version by then. The new
// process inherits the listener. When it accepts, the old process stops accepting and
// asks its clients to reconnect: each further response has Connection: close. It ends when
// the last connection has ended. After -drain it closes idle connections.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringside-io/ringside/examples/internal/handover"
	"github.com/ringside-io/ringside/examples/internal/options"
	"github.com/ringside-io/ringside/unet"
)

// grace is the time that requests have to finish at the end.
const grace = 800 * time.Millisecond

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "where to listen, unless the listener is inherited")
	drain := flag.Duration("drain", 30*time.Second, "how long idle connections are kept after a restart")
	options.Parse()
	options.Require(*drain >= 0, "-drain %v: must not be negative", *drain)
	if err := run(*addr, *drain); err != nil {
		fmt.Fprintln(os.Stderr, "restart:", err)
		os.Exit(1)
	}
}

func run(addr string, drain time.Duration) error {
	process, err := handover.New()
	if err != nil {
		return err
	}
	system, err := unet.NewSystem(unet.Options{})
	if err != nil {
		return err
	}
	l, err := process.Listen(system, "http", addr)
	if err != nil {
		return err
	}
	s := newServer()
	failed := make(chan error, 1)
	go func() { failed <- s.http.Serve(l) }()
	fmt.Fprintf(os.Stderr, "listening on http://%v, process %d\n", l.Addr(), os.Getpid())
	if err := process.Ready(); err != nil {
		return err
	}
	replaced, err := process.Wait(failed, nil, func(err error) { fmt.Fprintln(os.Stderr, "restart:", err) })
	switch {
	case err != nil:
		return err
	case replaced:
		return s.leave(l, failed, drain, process.Signals)
	}
	return s.end(grace)
}

// server counts its connections, so that it knows when the last one has ended.
type server struct {
	http    *http.Server
	open    sync.WaitGroup
	leaving atomic.Bool
}

func newServer() *server {
	s := new(server)
	s.http = &http.Server{Handler: s, ConnState: s.count, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	return s
}

func (s *server) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.open.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.open.Done()
	}
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.leaving.Load() {
		w.Header().Set("Connection", "close")
	}
	w.Header().Set("Process", strconv.Itoa(os.Getpid()))
	fmt.Fprintln(w, "served", r.URL.Path)
}

// leave serves the open connections until the last one has ended, the time is over or
// a signal arrives.
func (s *server) leave(l net.Listener, served <-chan error, drain time.Duration, signals <-chan os.Signal) error {
	s.leaving.Store(true)
	if err := l.Close(); err != nil {
		return err
	}
	<-served // from now on no connection is added
	last := make(chan struct{})
	go func() { s.open.Wait(); close(last) }()
	timer := time.NewTimer(drain)
	defer timer.Stop()
	select {
	case <-last:
	case <-timer.C:
	case <-signals:
	}
	return s.end(grace)
}

// end lets requests finish, for some time, and closes idle connections.
func (s *server) end(patience time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if errors.Is(err, net.ErrClosed) { // leave has closed the listener
		err = nil
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close()
	}
	return err
}

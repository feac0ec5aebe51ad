// SPDX-License-Identifier: MIT

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/ringside-io/ringside/unet"
)

const (
	// patience is how long a request waits for a database.
	patience = 10 * time.Second
	// grace is for requests to finish at the end, last for the databases to
	// close: together less than the second in which the service ends.
	grace = 600 * time.Millisecond
	last  = 300 * time.Millisecond
	// most is the size of an item in bytes.
	most = 1 << 20
)

// config says how to serve.
type config struct {
	addr, dir, vfs string
	open           int
	grace          time.Duration // for requests to finish at the end; 0 means the usual one
}

// service is the HTTP server and the databases behind it.
type service struct {
	config
	store  *store
	http   *http.Server
	l      net.Listener
	cancel context.CancelFunc // of all requests
}

// listen opens everything; run serves.
func listen(c config) (*service, error) {
	store, err := newStore(c.dir, c.vfs, c.open)
	if err != nil {
		return nil, err
	}
	l, err := unet.Listen("tcp", c.addr)
	if err != nil {
		return nil, errors.Join(err, store.close(0))
	}
	s := &service{config: c, store: store, l: l}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.http = &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          log.Default(),
	}
	return s, nil
}

func (s *service) addr() net.Addr { return s.l.Addr() }

// String says what the service stands on.
func (s *service) String() string {
	name, reason := unet.Backend()
	if reason != "" {
		reason = " (" + reason + ")"
	}
	return fmt.Sprintf("connections by %s%s, databases in %s by VFS %s, at most %d of them open", name, reason, s.dir, s.vfs, s.open)
}

// run serves until ctx ends, and then ends within a second: no new requests, time
// for those that are under way, then their contexts and connections, then the
// databases.
func (s *service) run(ctx context.Context) error {
	defer s.cancel()
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(s.l) }()
	select {
	case err := <-served:
		return errors.Join(err, s.store.close(last))
	case <-ctx.Done():
	}
	limit, cancel := context.WithTimeout(context.Background(), cmp.Or(s.grace, grace))
	defer cancel()
	err := s.http.Shutdown(limit)
	if err != nil {
		s.cancel()
		err = s.http.Close() // connections without a request count too: no error
	}
	<-served
	return errors.Join(err, s.store.close(last))
}

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

	"github.com/ringside-io/ringside/sqlitevfs/backup"
	"github.com/ringside-io/ringside/sqlitevfs/tenants"
	"github.com/ringside-io/ringside/unet"
)

const (
	// patience is how long a request waits for a database.
	patience = 10 * time.Second
	// ending is how long the end of the service may take.
	ending = 900 * time.Millisecond
	// most is the size of an item in bytes.
	most = 1 << 20
)

// config configures a service.
type config struct {
	addr, dir, vfs string
	backup         string // a directory for the backup; "" means none
	open           int
	ending         time.Duration // how long the end may take; 0 means the usual time
}

// service is the HTTP server and the databases behind it.
type service struct {
	config
	pool   *tenants.Pool
	saving *backup.Backup // nil without one
	http   *http.Server
	l      net.Listener
	cancel context.CancelFunc // of all requests
}

// listen opens everything; run serves.
func listen(c config) (*service, error) {
	pool, err := newPool(c)
	if err != nil {
		return nil, err
	}
	saving, err := startBackup(c)
	if err != nil {
		return nil, err
	}
	l, err := unet.Listen("tcp", c.addr)
	if err != nil {
		endBackup(saving, 0)
		return nil, err
	}
	s := &service{config: c, pool: pool, saving: saving, l: l}
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

// String describes the backend and the VFS of the service.
func (s *service) String() string {
	name, reason := unet.Backend()
	if reason != "" {
		reason = " (" + reason + ")"
	}
	return fmt.Sprintf("connections by %s%s, databases in %s by VFS %s, at most %d of them open", name, reason, s.dir, s.vfs, s.open)
}

// run serves until ctx ends, and then ends within a second: it refuses new requests,
// waits for those in progress, ends their contexts and connections, and closes the
// databases.
func (s *service) run(ctx context.Context) error {
	defer s.cancel()
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(s.l) }()
	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	begin, ending := time.Now(), cmp.Or(s.ending, ending)
	err = errors.Join(err, s.finish(ending*2/3))
	limit, cancel := context.WithDeadline(context.Background(), begin.Add(ending))
	defer cancel()
	if err := s.pool.Shutdown(limit); err != nil {
		// Acknowledged commits are durable, as after a crash.
		log.Printf("the next start recovers databases that could not be closed in time: %v", err)
	}
	endBackup(s.saving, ending-time.Since(begin))
	return err
}

// finish refuses connections and waits for requests. It cancels those that take longer
// than wait. A connection that has sent nothing is not an error.
func (s *service) finish(wait time.Duration) error {
	limit, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	err := s.http.Shutdown(limit)
	if errors.Is(err, context.DeadlineExceeded) {
		s.cancel()
		return s.http.Close()
	}
	return err
}

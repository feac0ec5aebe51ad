// SPDX-License-Identifier: MIT

package tenants

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ncruces/go-sqlite3"
)

// Pool keeps the databases of tenants. Its methods may be called concurrently.
type Pool struct {
	opts Options
	room room
}

// ErrClosed is the error of a pool that was shut down. It is an os.ErrClosed.
var ErrClosed = fmt.Errorf("tenants: the pool was shut down: %w", os.ErrClosed)

// Open makes a pool. It opens no database.
func Open(o Options) (*Pool, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	info, err := os.Stat(o.Dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", o.Dir)
	}
	if err == nil {
		o.Dir, err = filepath.Abs(o.Dir)
	}
	if err != nil {
		return nil, fmt.Errorf("tenants: Options.Dir: %w", err)
	}
	p := &Pool{opts: o}
	p.room.init(&p.opts)
	return p, nil
}

// Use calls fn with the connection of a tenant, which it opens if it is closed. It waits for its
// turn, and for room, until ctx ends; then it returns the context's error. The end of ctx also
// interrupts statements (sqlite3.INTERRUPT). A tenant without a database is an fs.ErrNotExist. The
// error of fn is returned as it is.
//
// Commits are durable when they return. A transaction that is open when fn returns is rolled back:
// see ErrTransaction. fn must not call Use for the same tenant.
func (p *Pool) Use(ctx context.Context, tenant string, fn func(*Conn) error) error {
	return p.use(ctx, tenant, false, fn)
}

// Create is like Use, and creates a database that is missing.
func (p *Pool) Create(ctx context.Context, tenant string, fn func(*Conn) error) error {
	return p.use(ctx, tenant, true, fn)
}

func (p *Pool) use(ctx context.Context, name string, create bool, fn func(*Conn) error) error {
	path, err := p.opts.path(name)
	if err != nil {
		return err
	}
	t, err := p.room.acquire(ctx, name, turn{create: create})
	if err != nil {
		return failed(name, err)
	}
	if t.conn == nil {
		c, err := p.wake(ctx, name, path, create)
		if err != nil {
			p.room.failed(t, create, err, ctx.Err() != nil)
			return failed(name, cmp.Or(ctx.Err(), err))
		}
		p.room.woken(t, c)
	}
	return p.run(ctx, t, fn)
}

func failed(tenant string, err error) error { return fmt.Errorf("tenants: %s: %w", tenant, err) }

// wake opens a database.
func (p *Pool) wake(ctx context.Context, name, path string, create bool) (c *Conn, err error) {
	defer exhausted(&err)
	return p.open(ctx, name, path, create)
}

// run calls fn, and gives the connection back.
func (p *Pool) run(ctx context.Context, t *tenant, fn func(*Conn) error) (err error) {
	keep := false // not after a panic: the state of the connection is not known
	defer func() { p.room.release(t, keep) }()
	defer exhausted(&err)
	c := t.conn
	c.db.SetInterrupt(ctx)
	err = fn(c)
	if errors.Is(err, sqlite3.INTERRUPT) && ctx.Err() != nil {
		err = errors.Join(err, ctx.Err())
	}
	rest := c.settle()
	keep = rest == nil || rest == ErrTransaction
	if err == nil && rest != errAttached {
		err = rest
	}
	return err
}

// Closed calls fn while the database of a tenant is closed, and no use opens it: to remove,
// replace or copy its files. It waits for the uses that came before, until ctx ends.
func (p *Pool) Closed(ctx context.Context, tenant string, fn func(path string) error) error {
	path, err := p.opts.path(tenant)
	if err != nil {
		return err
	}
	t, err := p.room.acquire(ctx, tenant, turn{closed: true})
	if err != nil {
		return failed(tenant, err)
	}
	defer p.room.release(t, false)
	return fn(path)
}

// Shutdown refuses further uses, and those that wait, with ErrClosed. It returns when all
// databases are closed, or with the context's error when ctx ends before: then the last uses close
// theirs. A database that is not closed is recovered when it is next opened.
func (p *Pool) Shutdown(ctx context.Context) error {
	for {
		left, change := p.room.drain()
		if left == 0 {
			return nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return fmt.Errorf("tenants: %d databases are open: %w", left, ctx.Err())
		}
	}
}

// Stats are counters of a pool.
type Stats struct {
	Open    int   // databases, including those that are being opened or closed
	InUse   int   // databases
	Waiting int   // uses that wait for a turn or for room
	Memory  int64 // of SQLite, as the bound counts it, in bytes
	Wakes   uint64
	Evicted uint64 // databases closed because another one needed the room
	Idle    uint64 // databases closed because they were idle
}

// Stats returns the counters.
func (p *Pool) Stats() Stats { return p.room.report() }

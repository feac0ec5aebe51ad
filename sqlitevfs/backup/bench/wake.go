// SPDX-License-Identifier: MIT

//go:build linux

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/ringside-io/ringside/sqlitevfs/tenants"
)

// wake uses databases at random, most of which are closed, by 1, 2 and 8 goroutines: by a *sql.DB for each use, by the
// two *sql.DB and the pragmas that PocketBase (v0.30) opens a database with, by the driver's own connections, and
// by package tenants.
func wake(o options) error {
	if err := o.create(); err != nil {
		return err
	}
	counts := []int{1, 2, 8}
	if o.goroutines != 0 {
		counts = []int{o.goroutines}
	}
	for _, goroutines := range counts {
		for _, statement := range []string{"SELECT body FROM t WHERE id = 7", "UPDATE t SET body = randomblob(500) WHERE id = 7"} {
			if !strings.HasPrefix(statement, o.statement) {
				continue
			}
			if err := o.wakeEach(goroutines, statement); err != nil {
				return err
			}
		}
	}
	return nil
}

// wakeEach measures the ways to wake a database, in turn.
func (o options) wakeEach(goroutines int, statement string) error {
	kind := strings.ToLower(statement[:6])
	var err error
	for range o.turns {
		err = errors.Join(err,
			o.wakeMany("one *sql.DB, "+kind, goroutines, func(i int) (time.Duration, error) { return o.useSQL(i, statement) }),
			o.wakeMany("PocketBase's, "+kind, goroutines, func(i int) (time.Duration, error) { return o.usePocketBase(i, statement) }),
			o.wakeMany("driver, "+kind, goroutines, func(i int) (time.Duration, error) { return o.useConn(i, statement) }),
			o.wakePool("tenants, "+kind, goroutines, statement))
	}
	return err
}

// wakePool measures a new pool, which holds its databases exclusively until it ends.
func (o options) wakePool(name string, goroutines int, statement string) error {
	pool, err := tenants.Open(tenants.Options{
		Dir: o.data(), VFS: o.vfs, MaxOpen: o.busy, File: func(name string) (string, error) { return name, nil },
	})
	if err != nil {
		return err
	}
	err = o.profiledIf(true, func() error {
		return o.wakeMany(name, goroutines, func(i int) (time.Duration, error) { return o.usePool(pool, i, statement) })
	})
	return errors.Join(err, pool.Shutdown(context.Background()))
}

func (o options) wakeMany(name string, goroutines int, use func(i int) (time.Duration, error)) error {
	if !strings.HasPrefix(name, o.only) {
		return nil
	}
	var mu sync.Mutex
	var times []time.Duration
	var failed error
	begin, cpu := time.Now(), cpuTime()
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for time.Since(begin) < o.turn {
				took, err := use(rand.IntN(o.dbs))
				mu.Lock()
				if times = append(times, took); err != nil {
					failed = err
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if failed != nil {
		return failed
	}
	slices.Sort(times)
	n := len(times)
	ms := func(p float64) float64 { return times[int(p*float64(n-1))].Seconds() * 1e3 }
	fmt.Printf("%-22s %d goroutines: %6.0f wake-ups/s, CPU %.0f µs each; p50 %.2f ms, p99 %.2f ms, longest %.1f ms\n", name, goroutines,
		float64(n)/time.Since(begin).Seconds(), (cpuTime()-cpu).Seconds()*1e6/float64(n), ms(0.5), ms(0.99), ms(1))
	return nil
}

// useSQL wakes a database, and returns how long its first statement took.
func (o options) useSQL(i int, statement string) (time.Duration, error) {
	begin := time.Now()
	db, err := o.open(i)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	if statement[0] == 'S' {
		var body []byte
		err = db.QueryRowContext(context.Background(), statement).Scan(&body)
	} else {
		_, err = db.Exec(statement)
	}
	return time.Since(begin), err
}

// usePocketBase wakes a database by a pool for reads and one with a single connection for writes.
func (o options) usePocketBase(i int, statement string) (took time.Duration, err error) {
	begin := time.Now()
	var dbs [2]*sql.DB
	for k, conns := range []int{120, 1} {
		dbs[k], err = sql.Open("sqlite3", "file:"+o.path(i)+"?vfs="+o.vfs+"&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)"+
			"&_pragma=journal_size_limit(200000000)&_pragma=synchronous(NORMAL)&_pragma=foreign_keys(ON)"+
			"&_pragma=temp_store(MEMORY)&_pragma=cache_size(-32000)")
		if err != nil {
			return 0, err
		}
		defer dbs[k].Close()
		dbs[k].SetMaxOpenConns(conns)
		dbs[k].SetMaxIdleConns(min(conns, 15))
		dbs[k].SetConnMaxIdleTime(3 * time.Minute)
	}
	if statement[0] == 'S' {
		var body []byte
		err = dbs[0].QueryRowContext(context.Background(), statement).Scan(&body)
	} else {
		_, err = dbs[1].Exec(statement)
	}
	return time.Since(begin), err
}

// usePool uses a database by a pool, which closes others meanwhile.
func (o options) usePool(p *tenants.Pool, i int, statement string) (took time.Duration, err error) {
	begin := time.Now()
	err = p.Use(context.Background(), filepath.Base(o.path(i)), func(c *tenants.Conn) error {
		s, err := c.Stmt(statement)
		if err != nil {
			return err
		}
		s.Step()
		took = time.Since(begin)
		return s.Err()
	})
	return took, err
}

func (o options) useConn(i int, statement string) (time.Duration, error) {
	begin := time.Now()
	c, err := sqlite3.Open("file:" + o.path(i) + "?vfs=" + o.vfs)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if err := c.Exec("PRAGMA busy_timeout=60000; PRAGMA journal_mode=wal; PRAGMA synchronous=full"); err != nil {
		return 0, err
	}
	s, _, err := c.Prepare(statement)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	s.Step()
	return time.Since(begin), s.Err()
}

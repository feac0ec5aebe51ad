// SPDX-License-Identifier: MIT

//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// wake opens databases that are closed, makes a query or a commit, and closes them, by 1 and by 8 goroutines, by
// database/sql and by the driver's own connections.
func wake(o options) error {
	if err := o.create(); err != nil {
		return err
	}
	for _, goroutines := range []int{1, 8} {
		for _, c := range []struct {
			name string
			use  func(options, int) (woken time.Duration, err error)
		}{
			{"database/sql, query", func(o options, i int) (time.Duration, error) { return o.useSQL(i, "SELECT body FROM t WHERE id = 7") }},
			{"database/sql, commit", func(o options, i int) (time.Duration, error) {
				return o.useSQL(i, "UPDATE t SET body = randomblob(500) WHERE id = 7")
			}},
			{"driver, query", func(o options, i int) (time.Duration, error) { return o.useConn(i, "SELECT body FROM t WHERE id = 7") }},
		} {
			if err := o.wakeMany(c.name, goroutines, c.use); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o options) wakeMany(name string, goroutines int, use func(options, int) (time.Duration, error)) error {
	var mu sync.Mutex
	var times []time.Duration
	var failed error
	begin, cpu := time.Now(), cpuTime()
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for time.Since(begin) < o.turn {
				took, err := use(o, rand.IntN(o.dbs))
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

// SPDX-License-Identifier: MIT

//go:build linux

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// busy commits to all databases in loops, with a backup and without one in turn.
func busy(o options) error {
	if err := o.create(); err != nil {
		return err
	}
	dbs := make([]*sql.DB, o.dbs)
	for i := range dbs {
		var err error
		if dbs[i], err = o.open(i); err != nil {
			return err
		}
		defer dbs[i].Close()
	}
	w := &writers{stop: make(chan struct{})}
	for _, db := range dbs {
		w.all.Go(func() { w.commit(db) })
	}
	defer w.all.Wait()
	defer close(w.stop)
	var rates, costs []float64
	var lags []time.Duration
	for range o.turns {
		var got [2]turn
		for _, with := range rand.Perm(2) {
			t, err := o.measure(w, with == 1)
			if err != nil {
				return err
			}
			got[with] = t
			lags = append(lags, t.lags...)
		}
		rates = append(rates, got[1].rate/got[0].rate)
		costs = append(costs, got[1].cost/got[0].cost)
		fmt.Printf("commits/s %.0f without, %.0f with: %.2f; CPU a commit %.0f µs, %.0f µs: %.2f; %.1f requests/s, %.2f MB/s\n",
			got[0].rate, got[1].rate, rates[len(rates)-1], got[0].cost*1e6, got[1].cost*1e6, costs[len(costs)-1],
			got[1].requests, got[1].bytes/1e6)
	}
	slices.Sort(rates)
	slices.Sort(costs)
	n := len(rates)
	fmt.Printf("median of %d pairs: commits/s %.2f (%.2f to %.2f), CPU a commit %.2f (%.2f to %.2f); lag %s\n",
		n, rates[n/2], rates[0], rates[n-1], costs[n/2], costs[0], costs[n-1], spread(lags))
	return errors.Join(w.err.errs...)
}

// writers commit until stop is closed.
type writers struct {
	stop    chan struct{}
	all     sync.WaitGroup
	commits atomic.Int64
	err     struct {
		sync.Mutex
		errs []error
	}
}

func (w *writers) commit(db *sql.DB) {
	for i := 0; ; i++ {
		select {
		case <-w.stop:
			return
		default:
		}
		if _, err := db.Exec("UPDATE t SET body = randomblob(500) WHERE id = ?", 1+rand.IntN(100)); err != nil {
			w.err.Lock()
			w.err.errs = append(w.err.errs, err)
			w.err.Unlock()
			return
		}
		w.commits.Add(1)
	}
}

// turn is what a turn shows.
type turn struct {
	rate, cost      float64 // commits per second, seconds of processor time for each
	requests, bytes float64 // per second
	lags            []time.Duration
}

// measure measures for a turn.
func (o options) measure(w *writers, with bool) (t turn, err error) {
	b, err := o.start()
	if err != nil {
		return t, err
	}
	defer b.Close()
	if with {
		if err := b.Sync(context.Background()); err != nil { // the first snapshots are not counted
			return t, err
		}
	} else if err := b.Close(); err != nil {
		return t, err
	}
	before := b.Stats()
	err = o.profiledIf(with, func() error {
		begin, cpu, n := time.Now(), cpuTime(), w.commits.Load()
		for time.Since(begin) < o.turn {
			time.Sleep(50 * time.Millisecond)
			if with {
				for _, s := range b.Databases() {
					t.lags = append(t.lags, s.Lag)
				}
			}
		}
		done, took := float64(w.commits.Load()-n), time.Since(begin).Seconds()
		after := b.Stats()
		t.rate, t.cost = done/took, (cpuTime()-cpu).Seconds()/done
		t.requests = float64(after.Requests-before.Requests) / took
		t.bytes = float64(after.Bytes-before.Bytes) / took
		return nil
	})
	return t, err
}

func (o options) profiledIf(want bool, fn func() error) error {
	if !want {
		return fn()
	}
	return o.profiled(fn)
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

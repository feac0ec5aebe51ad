// SPDX-License-Identifier: MIT

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/sqlitevfs/backup"
)

// visits is the process that hour kills. It backs up the databases that hour has made, while -busy goroutines commit -rate times a
// second each to another database each turn, as tenants come and go. It prints each commit as it begins and as it is done, and
// a line a turn. SIGTERM ends it.
func visits(o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	began := time.Now()
	b, err := o.start()
	if err != nil {
		return err
	}
	fmt.Printf("Start returned after %v\n", time.Since(began).Round(time.Millisecond))
	var all sync.WaitGroup
	var commits atomic.Int64
	errs := make([]error, o.busy)
	for g := range o.busy {
		all.Go(func() { errs[g] = o.visit(ctx, g, &commits) })
	}
	all.Go(func() {
		if b.Sync(ctx) == nil {
			fmt.Printf("the target has all databases %.1f s after the start\n", time.Since(began).Seconds())
		}
	})
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	o.watchVisits(b, done, &commits)
	began = time.Now()
	err = errors.Join(append(errs, b.Shutdown(context.Background()))...)
	fmt.Printf("stopped in %.2f s: %+v\n", time.Since(began).Seconds(), b.Stats())
	return err
}

// visit commits to one database a turn. The databases of two goroutines differ.
func (o options) visit(ctx context.Context, g int, commits *atomic.Int64) error {
	time.Sleep(rand.N(time.Duration(float64(time.Second) / o.rate)))
	for ctx.Err() == nil {
		turn, stop := context.WithTimeout(ctx, o.turn)
		err := o.visitOne(turn, g+o.busy*rand.IntN(o.dbs/o.busy), commits)
		if stop(); err != nil {
			return err
		}
	}
	return nil
}

func (o options) visitOne(ctx context.Context, i int, commits *atomic.Int64) error {
	db, err := o.open(i)
	if err != nil {
		return err
	}
	defer db.Close()
	tick := time.NewTicker(time.Duration(float64(time.Second) / o.rate))
	defer tick.Stop()
	for ctx.Err() == nil {
		value := time.Now().UnixNano()
		fmt.Printf("begin %d %d\n", i, value)
		if _, err := db.Exec("UPDATE t SET body = ? WHERE id = 7", value); err != nil {
			return fmt.Errorf("%s: %w", o.path(i), err)
		}
		fmt.Printf("done %d %d\n", i, value)
		commits.Add(1)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// watchVisits prints a line for each turn until done is closed.
func (o options) watchVisits(b *backup.Backup, done chan struct{}, commits *atomic.Int64) {
	sample, line := time.NewTicker(500*time.Millisecond), time.NewTicker(o.turn)
	defer sample.Stop()
	defer line.Stop()
	var lags, whole []time.Duration
	cpu, since, others, requests := cpuTime(), time.Now(), busyTime(), uint64(0)
	for open := true; open; {
		select {
		case <-sample.C:
			for _, s := range b.Databases() {
				if s.Lag > 0 {
					lags = append(lags, s.Lag)
				}
			}
			continue
		case <-done:
			open = false
		case <-line.C:
		}
		stats := b.Stats()
		machine := (busyTime() - others).Seconds() / time.Since(since).Seconds() * 100
		report(fmt.Sprintf("%d commits, %d requests, %d failed, lag %s; all programs %.0f %%, this one",
			commits.Load(), stats.Requests-requests, stats.Failures, spread(lags), machine), cpu, since)
		whole, lags, cpu, since, others, requests = append(whole, lags...), lags[:0], cpuTime(), time.Now(), busyTime(), stats.Requests
	}
	fmt.Printf("lag since the start: %s\n", spread(whole))
}

// busyTime returns the processor time of all programs of the machine.
func busyTime() time.Duration {
	content, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(content), "\n")
	var user, nice, system int64
	_, _ = fmt.Sscanf(line, "cpu %d %d %d", &user, &nice, &system)
	return time.Duration(user+nice+system) * 10 * time.Millisecond
}

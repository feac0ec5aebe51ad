// SPDX-License-Identifier: MIT

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringside-io/ringside/sqlitevfs/backup"
)

// firstStart starts the backup of databases that the target lacks while -busy of them commit ten times a second. It prints the lag
// of these for each second, until the target has all databases.
func firstStart(o options) error {
	if err := o.create(); err != nil {
		return err
	}
	return o.profiled(func() error {
		began, cpu := time.Now(), cpuTime()
		b, err := o.start()
		if err != nil {
			return err
		}
		fmt.Printf("Start returned after %v\n", time.Since(began).Round(time.Millisecond))
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		var all sync.WaitGroup
		var commits atomic.Int64
		errs := make([]error, o.busy)
		for i := range o.busy {
			all.Go(func() { errs[i] = o.commitEach(ctx, i, &commits) })
		}
		done := make(chan error, 1)
		go func() { done <- b.Sync(ctx) }()
		err = o.watchStart(b, began, done, &commits)
		fmt.Printf("the target has all %d databases after %.1f s, %.1f s of processor time\n", o.dbs, time.Since(began).Seconds(), (cpuTime() - cpu).Seconds())
		if err == nil {
			done := make(chan error, 1)
			time.AfterFunc(5*time.Second, func() { done <- nil })
			err = o.watchStart(b, began, done, &commits)
		}
		stop()
		all.Wait()
		return errors.Join(append(errs, err, b.Shutdown(context.Background()))...)
	})
}

// commitEach commits to a database ten times a second.
func (o options) commitEach(ctx context.Context, i int, commits *atomic.Int64) error {
	db, err := o.open(i)
	if err != nil {
		return err
	}
	defer db.Close()
	time.Sleep(rand.N(100 * time.Millisecond))
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if _, err := db.Exec("UPDATE t SET body = randomblob(500) WHERE id = ?", 1+rand.IntN(100)); err != nil {
			return err
		}
		commits.Add(1)
	}
}

// watchStart prints a line a second until done.
func (o options) watchStart(b *backup.Backup, began time.Time, done chan error, commits *atomic.Int64) error {
	busy := make(map[string]bool)
	for i := range o.busy {
		busy[filepath.Base(o.path(i))] = true
	}
	sample, line := time.NewTicker(200*time.Millisecond), time.NewTicker(time.Second)
	defer sample.Stop()
	defer line.Stop()
	var lags []time.Duration
	before := int64(0)
	for {
		select {
		case err := <-done:
			return err
		case <-sample.C:
			for _, s := range b.Databases() {
				if busy[s.Name] {
					lags = append(lags, s.Lag)
				}
			}
		case <-line.C:
			n := commits.Load()
			fmt.Printf("%5.1f s: %d objects, %d commits/s, lag %s\n", time.Since(began).Seconds(), b.Stats().Objects, n-before, spread(lags))
			before, lags = n, lags[:0]
		}
	}
}

// SPDX-License-Identifier: MIT

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringside-io/ringside/sqlitevfs/backup"
)

// hour backs up -dbs databases while -busy goroutines commit once a second for -turns turns, each
// to another database in each turn, as tenants come and go. It then restores all databases and
// compares those that changed with what was acknowledged; the program sqlite3 checks them.
func hour(o options) error {
	if err := o.create(); err != nil {
		return err
	}
	begin := time.Now()
	b, err := o.start()
	if err != nil {
		return err
	}
	if err := b.Sync(context.Background()); err != nil {
		return err
	}
	fmt.Printf("%s: the target has %d databases after %.0f s\n", time.Now().Format(time.TimeOnly), o.dbs, time.Since(begin).Seconds())
	d := &day{options: o, acknowledged: make(map[int]int64)}
	var all sync.WaitGroup
	errs := make([]error, o.busy)
	for g := range o.busy {
		all.Go(func() { errs[g] = d.visit(g) })
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	d.watch(b, done)
	begin = time.Now()
	if err := errors.Join(append(errs, b.Shutdown(context.Background()))...); err != nil {
		return err
	}
	fmt.Printf("stopped in %.2f s: %+v\n", time.Since(begin).Seconds(), b.Stats())
	return d.verify()
}

// day is what happened to the databases.
type day struct {
	options
	commits      atomic.Int64
	mu           sync.Mutex
	acknowledged map[int]int64 // the last value, by database
}

// visit commits to one database a turn. The databases of two goroutines differ.
func (d *day) visit(g int) error {
	for range d.turns {
		i := g + d.busy*rand.IntN(d.dbs/d.busy)
		db, err := d.open(i)
		if err != nil {
			return err
		}
		tick := time.NewTicker(time.Second)
		for end := time.Now().Add(d.turn); time.Now().Before(end); <-tick.C {
			value := rand.Int64()
			if _, err := db.Exec("UPDATE t SET body = ? WHERE id = 7", value); err != nil {
				return errors.Join(fmt.Errorf("%s: %w", d.path(i), err), db.Close())
			}
			d.commits.Add(1)
			d.mu.Lock()
			d.acknowledged[i] = value
			d.mu.Unlock()
		}
		tick.Stop()
		if err := db.Close(); err != nil {
			return err
		}
	}
	return nil
}

// watch prints a line for each turn until done is closed.
func (d *day) watch(b *backup.Backup, done chan struct{}) {
	sample, line := time.NewTicker(100*time.Millisecond), time.NewTicker(d.turn)
	defer sample.Stop()
	defer line.Stop()
	var lags, whole []time.Duration
	cpu, since := cpuTime(), time.Now()
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
		report(fmt.Sprintf("%s: %d commits, lag %s", time.Now().Format(time.TimeOnly), d.commits.Load(), spread(lags)), cpu, since)
		whole, lags, cpu, since = append(whole, lags...), lags[:0], cpuTime(), time.Now()
	}
	fmt.Printf("lag of all turns: %s\n", spread(whole))
}

func spread(lags []time.Duration) string {
	if len(lags) == 0 {
		return "none"
	}
	slices.Sort(lags)
	at := func(p float64) float64 { return lags[int(p*float64(len(lags)-1))].Seconds() }
	return fmt.Sprintf("p50 %.2f s, p99 %.2f s, longest %.2f s", at(0.5), at(0.99), at(1))
}

// verify restores all databases and compares them.
func (d *day) verify() error {
	into := filepath.Join(d.dir, "restored")
	if err := os.Mkdir(into, 0o700); err != nil {
		return err
	}
	reports, err := backup.Databases(context.Background(), backup.Dir(d.target))
	if err != nil {
		return err
	}
	names := make([]string, len(reports))
	for i, r := range reports {
		names[i] = r.Name
	}
	begin := time.Now()
	if err := backup.RestoreAll(context.Background(), backup.Dir(d.target), names, into, backup.RestoreOptions{}, nil); err != nil {
		return err
	}
	fmt.Printf("%d databases restored in %.1f s\n", len(names), time.Since(begin).Seconds())
	for i, want := range d.acknowledged {
		file := filepath.Join(into, filepath.Base(d.path(i)))
		out, err := exec.Command("sqlite3", file, "PRAGMA integrity_check; SELECT body FROM t WHERE id = 7").Output()
		if err != nil {
			return err
		}
		if got := strings.Fields(string(out)); !slices.Equal(got, []string{"ok", strconv.FormatInt(want, 10)}) {
			return fmt.Errorf("%s: %q; the last acknowledged value is %d", file, got, want)
		}
	}
	fmt.Printf("%d of them had commits and are as acknowledged; integrity_check of the program sqlite3: ok\n", len(d.acknowledged))
	return nil
}

// SPDX-License-Identifier: MIT

//go:build linux

// Ycsb compares pebble on pebblevfs with pebble on vfs.Default by the workloads A to F
// of the Yahoo Cloud Serving Benchmark (Cooper and others, 2010): records of ten fields,
// zipfian keys, scans of up to 100 records. Both run in turn on one database, whose
// block cache is small, so that reads reach the file system: cached ones find their
// pages in the page cache, cold ones begin after it was emptied.
//
//	go run ./ufile/pebblevfs/ycsb --dir /var/tmp --records 500000
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ringside-io/ringside/ufile/pebblevfs"
	"golang.org/x/sys/unix"
)

// workload is a mix of operations in percent.
type workload struct {
	name                                string
	read, update, insert, scan, rewrite int
	latest, uniform                     bool
}

var workloads = []workload{
	{name: "A", read: 50, update: 50},
	{name: "B", read: 95, update: 5},
	{name: "C", read: 100},
	{name: "D", read: 95, insert: 5, latest: true},
	{name: "E", scan: 95, insert: 5},
	{name: "F", read: 50, rewrite: 50},
	{name: "C uniform", read: 100, uniform: true},
}

type bench struct {
	dir     string
	records atomic.Uint64
	clients int
	time    time.Duration
	cache   int64
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("ycsb: ")
	var b bench
	parent := flag.String("dir", "", "where the database is made; default: the directory for temporary files")
	records := flag.Int("records", 200_000, "records of 1000 bytes")
	flag.IntVar(&b.clients, "clients", 64, "goroutines")
	flag.DurationVar(&b.time, "time", 3*time.Second, "duration of a run")
	flag.Int64Var(&b.cache, "cache", 8<<20, "bytes of pebble's block cache")
	pairs := flag.Int("pairs", 5, "runs of each file system")
	only := flag.String("only", "", "comma-separated workloads, as in the table; default: all")
	flag.Parse()
	if err := b.run(*parent, *records, *pairs, *only); err != nil {
		log.Fatal(err)
	}
}

func (b *bench) run(parent string, records, pairs int, only string) (err error) {
	if b.dir, err = os.MkdirTemp(parent, "ycsb"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if err := b.load(records); err != nil {
		return err
	}
	fmt.Printf("%d records, %d clients, medians of %d pairs of %v (least and most)\n", records, b.clients, pairs, b.time)
	fmt.Printf("%-18s %12s %12s %22s %12s\n", "workload", "default/s", "ringside/s", "ratio", "CPU ratio")
	for _, w := range workloads {
		if only != "" && !slices.Contains(strings.Split(only, ","), w.name) {
			continue
		}
		for _, cold := range []bool{false, true} {
			if err := b.pairs(w, cold, pairs); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
	}
	return nil
}

func (b *bench) open(fs vfs.FS) (*pebble.DB, error) {
	cache := pebble.NewCache(b.cache)
	defer cache.Unref()
	o := &pebble.Options{FS: fs, Cache: cache, Logger: silent{}, MaxOpenFiles: 10000}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	return pebble.Open(b.dir, o)
}

type silent struct{}

func (silent) Infof(string, ...any)      {}
func (silent) Errorf(f string, a ...any) { log.Printf(f, a...) }
func (silent) Fatalf(f string, a ...any) { log.Fatalf(f, a...) }

func (b *bench) load(records int) error {
	db, err := b.open(vfs.Default)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range records {
		if err := db.Set(key(uint64(i)), value(rng), pebble.NoSync); err != nil {
			return err
		}
	}
	b.records.Store(uint64(records))
	return errors.Join(db.Flush(), db.Compact(context.Background(), []byte("user"), []byte("v"), true), db.Close())
}

// key spreads the numbers of records over the database.
func key(i uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte("user"), i*0x9e3779b97f4a7c15)
}

func value(rng *rand.Rand) []byte {
	p := make([]byte, 1000)
	for i := 0; i < len(p); i += 8 {
		binary.LittleEndian.PutUint64(p[i:], rng.Uint64())
	}
	return p
}

// pairs prints a line of the table.
func (b *bench) pairs(w workload, cold bool, pairs int) error {
	var theirs, ours, ratio, cpu []float64
	for i := range pairs {
		var rate, used [2]float64
		for j := range 2 {
			engine := (i + j) % 2
			fs := []vfs.FS{vfs.Default, pebblevfs.New(nil)}[engine]
			var err error
			if rate[engine], used[engine], err = b.once(w, fs, cold, uint64(i)); err != nil {
				return err
			}
		}
		theirs, ours = append(theirs, rate[0]), append(ours, rate[1])
		ratio, cpu = append(ratio, rate[1]/rate[0]), append(cpu, used[1]/used[0])
	}
	name := w.name + ", cached"
	if cold {
		name = w.name + ", cold"
	}
	m, least, most := median(ratio)
	t, _, _ := median(theirs)
	o, _, _ := median(ours)
	c, _, _ := median(cpu)
	fmt.Printf("%-18s %12.0f %12.0f %8.2f (%.2f–%.2f) %12.2f\n", name, t, o, m, least, most, c)
	return nil
}

func median(xs []float64) (m, least, most float64) {
	xs = slices.Sorted(slices.Values(xs))
	return xs[len(xs)/2], xs[0], xs[len(xs)-1]
}

// once runs a workload and returns operations a second and CPU time for each.
func (b *bench) once(w workload, fs vfs.FS, cold bool, seed uint64) (rate, cpu float64, err error) {
	db, err := b.open(fs)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if cold {
		if err := b.forget(); err != nil {
			return 0, 0, err
		}
	}
	var done atomic.Uint64
	var wg sync.WaitGroup
	failed := make(chan error, b.clients)
	began, usedBefore := time.Now(), processorTime()
	for c := range b.clients {
		wg.Go(func() {
			client := client{b: b, db: db, w: w, rng: rand.New(rand.NewPCG(seed, uint64(c)))}
			client.zipf = rand.NewZipf(client.rng, 1.01, 1, b.records.Load()-1)
			for time.Since(began) < b.time {
				if err := client.step(); err != nil {
					failed <- err
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	close(failed)
	n := float64(done.Load())
	return n / time.Since(began).Seconds(), (processorTime() - usedBefore).Seconds() / n, <-failed
}

func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// forget empties the page cache of the database.
func (b *bench) forget() error {
	names, err := filepath.Glob(filepath.Join(b.dir, "*"))
	for _, name := range names {
		f, openErr := os.Open(name)
		if openErr != nil { // compacted away
			continue
		}
		_ = f.Sync()
		err = errors.Join(err, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
		f.Close()
	}
	return err
}

type client struct {
	b    *bench
	db   *pebble.DB
	w    workload
	rng  *rand.Rand
	zipf *rand.Zipf
}

// pick chooses a record.
func (c *client) pick() uint64 {
	n := c.b.records.Load()
	switch {
	case c.w.uniform:
		return c.rng.Uint64N(n)
	case c.w.latest:
		return n - 1 - min(c.zipf.Uint64(), n-1)
	}
	return c.zipf.Uint64()
}

func (c *client) step() error {
	switch p := c.rng.IntN(100); {
	case p < c.w.read:
		return c.read()
	case p < c.w.read+c.w.update:
		return c.db.Set(key(c.pick()), value(c.rng), pebble.NoSync)
	case p < c.w.read+c.w.update+c.w.insert:
		return c.db.Set(key(c.b.records.Add(1)-1), value(c.rng), pebble.NoSync)
	case p < c.w.read+c.w.update+c.w.insert+c.w.scan:
		return c.scan()
	}
	if err := c.read(); err != nil {
		return err
	}
	return c.db.Set(key(c.pick()), value(c.rng), pebble.NoSync)
}

func (c *client) read() error {
	_, closer, err := c.db.Get(key(c.pick()))
	if errors.Is(err, pebble.ErrNotFound) && c.w.insert > 0 { // its insertion has not ended
		return nil
	}
	if err != nil {
		return err
	}
	return closer.Close()
}

func (c *client) scan() error {
	it, err := c.db.NewIter(nil)
	if err != nil {
		return err
	}
	n := 1 + c.rng.IntN(100)
	for ok := it.SeekGE(key(c.pick())); ok && n > 0; ok = it.Next() {
		n--
	}
	return it.Close()
}

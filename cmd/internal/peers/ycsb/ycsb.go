// SPDX-License-Identifier: MIT

// Package ycsb measures the database pebble by the workloads A to F of the Yahoo Cloud Serving
// Benchmark (Cooper and others, 2010): records of 1000 bytes, zipfian keys, scans of up to 100
// records. Pebble is in builds for Linux with -tags peers only.
package ycsb

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/measure"
)

const (
	// Records is the number of records of the database that a suite makes.
	Records = 300_000
	// recordSize is the length of a record in bytes. It begins with its number and a stamp.
	recordSize = 1000
	// Space is the number of bytes that Records and their compaction need.
	Space = 3 * Records * recordSize
	// Memory is the number of bytes that the page cache must have for cached reads.
	Memory = 2 * Records * recordSize
	// mostScanned is the largest number of records of a scan.
	mostScanned = 100
)

// ErrMissing is the error of a build without pebble.
var ErrMissing = errors.New("built without it: needs -tags peers, on Linux")

// Known reports whether this build has pebble.
func Known() bool { return open != nil }

// open opens a database on files of ufile, or on those of pebble itself. It creates a missing one.
var open func(dir string, ringside bool) (store, error)

// errNotFound is the error of a read of a missing record.
var errNotFound = errors.New("record not found")

// store is an open database. Its methods may be called concurrently.
type store interface {
	// get passes the value of a key to check, which must not keep it.
	get(key []byte, check func(value []byte) error) error
	set(key, value []byte) error
	// scan passes up to n records from a key on.
	scan(from []byte, n int, check func(key, value []byte) error) error
	// compact writes everything to tables and compacts them.
	compact(ctx context.Context) error
	Close() error
}

// mix is a workload: shares of operations in percent.
type mix struct {
	read, update, insert, scan, rewrite int
	latest, uniform                     bool
}

// UniformC is the mix C whose keys are not zipfian but equally frequent.
const UniformC = "C-uniform"

var mixes = map[string]mix{
	"A":      {read: 50, update: 50},
	"B":      {read: 95, update: 5},
	"C":      {read: 100},
	"D":      {read: 95, insert: 5, latest: true},
	"E":      {scan: 95, insert: 5},
	"F":      {read: 50, rewrite: 50},
	UniformC: {read: 100, uniform: true},
}

// Mixes returns the names of all mixes.
func Mixes() []string { return slices.Sorted(maps.Keys(mixes)) }

// Job describes a round. Without a Mix it makes the database.
type Job struct {
	// Dir is the directory of the database. Rounds use a copy, so that all begin with the same state.
	Dir string `json:"dir"`
	// Mix is one of Mixes.
	Mix string `json:"mix,omitempty"`
	// Records is the number of records of the database.
	Records int `json:"records"`
	// Cold removes the database from the page cache before the measured window.
	Cold bool `json:"cold,omitempty"`
	// Seed selects the operations.
	Seed uint64 `json:"seed"`
}

// Run runs the round with the given plan, or makes the database. All values that it reads are
// verified.
func (j Job) Run(ctx context.Context, ringside bool, plan measure.Plan) (s measure.Sample, err error) {
	if open == nil {
		return s, fmt.Errorf("pebble: %w", ErrMissing)
	}
	if j.Mix == "" {
		return s, j.load(ctx)
	}
	m, ok := mixes[j.Mix]
	if !ok {
		return s, fmt.Errorf("unknown mix %q", j.Mix)
	}
	dir, err := os.MkdirTemp(filepath.Dir(j.Dir), "round-")
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := copyDatabase(dir, j.Dir); err != nil {
		return s, err
	}
	db, err := open(dir, ringside)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if j.Cold {
		plan.Between = func() error { return eachFile(dir, datafile.EvictWritten) }
	}
	var records atomic.Uint64
	records.Store(uint64(j.Records))
	return measure.Run(ctx, plan, func(goroutine int) (measure.Op, error) {
		c := &client{db: db, mix: m, records: &records, random: rand.New(rand.NewPCG(j.Seed, uint64(goroutine)))}
		c.zipf = rand.NewZipf(c.random, 1.01, 1, records.Load()-1)
		return c.step, nil
	})
}

// load makes the database with pebble's own files.
func (j Job) load(ctx context.Context) (err error) {
	db, err := open(j.Dir, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	value := make([]byte, recordSize)
	for i := range uint64(j.Records) {
		if err := ctx.Err(); err != nil {
			return err
		}
		fill(value, i, j.Seed)
		if err := db.set(key(i), value); err != nil {
			return err
		}
	}
	return db.compact(ctx)
}

// ReadIn reads the files of a database into the page cache.
func ReadIn(ctx context.Context, dir string) error {
	return eachFile(dir, func(path string) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		return datafile.ReadIn(ctx, path, info.Size())
	})
}

// eachFile calls f with the path of each file of a directory.
func eachFile(dir string, f func(path string) error) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		// Pebble may remove a file in the meantime.
		if fileErr := f(filepath.Join(dir, e.Name())); !errors.Is(fileErr, os.ErrNotExist) {
			err = errors.Join(err, fileErr)
		}
	}
	return err
}

// copyDatabase copies a closed database. Tables, which pebble never changes, are links if the file
// system has them.
func copyDatabase(to, from string) error {
	return eachFile(from, func(path string) error {
		name := filepath.Join(to, filepath.Base(path))
		if filepath.Ext(path) == ".sst" && os.Link(path, name) == nil {
			return nil
		}
		return datafile.Copy(path, name)
	})
}

// spread is odd, so that different numbers have different keys.
const spread = 0x9e3779b97f4a7c15

// key returns the key of a record. Successive numbers are far apart.
func key(number uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte("user"), number*spread)
}

// fill writes the value of a record.
func fill(value []byte, number, stamp uint64) {
	binary.LittleEndian.PutUint64(value, number)
	binary.LittleEndian.PutUint64(value[8:], stamp)
	state := number ^ stamp
	for i := 16; i+8 <= len(value); i += 8 {
		binary.LittleEndian.PutUint64(value[i:], datafile.SplitMix(&state))
	}
}

// client is one goroutine's operations. Other goroutines do not use it.
type client struct {
	db      store
	mix     mix
	records *atomic.Uint64
	random  *rand.Rand
	zipf    *rand.Zipf
	value   [recordSize]byte
	want    [recordSize]byte
}

// step does one operation. It returns 0 because pebble does not report the bytes that it moves.
func (c *client) step() (int, error) {
	switch p := c.random.IntN(100); {
	case p < c.mix.read:
		return 0, c.read(c.pick())
	case p < c.mix.read+c.mix.update:
		return 0, c.write(c.pick())
	case p < c.mix.read+c.mix.update+c.mix.insert:
		return 0, c.write(c.records.Add(1) - 1)
	case p < c.mix.read+c.mix.update+c.mix.insert+c.mix.scan:
		return 0, c.db.scan(key(c.pick()), 1+c.random.IntN(mostScanned), c.check)
	}
	number := c.pick()
	if err := c.read(number); err != nil {
		return 0, err
	}
	return 0, c.write(number)
}

// pick chooses a record.
func (c *client) pick() uint64 {
	n := c.records.Load()
	switch {
	case c.mix.uniform:
		return c.random.Uint64N(n)
	case c.mix.latest:
		return n - 1 - min(c.zipf.Uint64(), n-1)
	}
	return c.zipf.Uint64()
}

func (c *client) write(number uint64) error {
	fill(c.value[:], number, c.random.Uint64())
	return c.db.set(key(number), c.value[:])
}

func (c *client) read(number uint64) error {
	k := key(number)
	err := c.db.get(k, func(value []byte) error { return c.check(k, value) })
	if errors.Is(err, errNotFound) && c.mix.insert > 0 { // its insertion has not ended
		return nil
	}
	return err
}

// check returns an error if a value is not one that was written for the key.
func (c *client) check(k, value []byte) error {
	if len(value) != recordSize {
		return fmt.Errorf("a record of %d bytes, want %d", len(value), recordSize)
	}
	number := binary.LittleEndian.Uint64(value)
	fill(c.want[:], number, binary.LittleEndian.Uint64(value[8:]))
	if !bytes.Equal(k, key(number)) || !bytes.Equal(value, c.want[:]) {
		return fmt.Errorf("the record of key %x is wrong", k)
	}
	return nil
}

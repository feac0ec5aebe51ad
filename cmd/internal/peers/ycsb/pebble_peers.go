// SPDX-License-Identifier: MIT

//go:build peers && linux

package ycsb

import (
	"context"
	"errors"
	"log"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ringside-io/ringside/ufile/pebblevfs"
)

func init() { open = openPebble }

// cacheSize is the length of pebble's block cache in bytes. It is so small that most reads reach
// the file system.
const cacheSize = 8 << 20

type database struct{ db *pebble.DB }

func openPebble(dir string, ringside bool) (store, error) {
	cache := pebble.NewCache(cacheSize)
	defer cache.Unref()
	o := &pebble.Options{FS: vfs.Default, Cache: cache, Logger: logger{}, MaxOpenFiles: 10000}
	if ringside {
		o.FS = pebblevfs.New(nil)
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	db, err := pebble.Open(dir, o)
	if err != nil {
		return nil, err
	}
	return database{db}, nil
}

// logger logs errors only.
type logger struct{}

func (logger) Infof(string, ...any)      {}
func (logger) Errorf(f string, a ...any) { log.Printf(f, a...) }
func (logger) Fatalf(f string, a ...any) { log.Fatalf(f, a...) }

func (d database) get(key []byte, check func([]byte) error) error {
	value, closer, err := d.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return errNotFound
	}
	if err != nil {
		return err
	}
	return errors.Join(check(value), closer.Close())
}

func (d database) set(key, value []byte) error { return d.db.Set(key, value, pebble.NoSync) }

func (d database) scan(from []byte, n int, check func(key, value []byte) error) (err error) {
	it, err := d.db.NewIter(nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.SeekGE(from); ok && n > 0; ok = it.Next() {
		if err := check(it.Key(), it.Value()); err != nil {
			return err
		}
		n--
	}
	return nil
}

func (d database) compact(ctx context.Context) error {
	return errors.Join(d.db.Flush(), d.db.Compact(ctx, []byte("user"), []byte("v"), true))
}

func (d database) Close() error { return d.db.Close() }

// SPDX-License-Identifier: MIT

// Package loghook is a test hook: it lets tests replace the directory below every log of
// package appendlog, also the logs that other packages keep.
package loghook

import "io"

// BlockSize is the unit of writes that bypass the page cache.
const BlockSize = 4 << 10

// File is a file of a log. Tests use implementations that fail or lose power.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Size() (int64, error)
	Truncate(size int64) error
	// Direct makes writes bypass the page cache, or pass through it again, and reports whether
	// they bypass it. Then each write is of whole blocks of BlockSize bytes, from memory
	// whose address is a multiple of it.
	Direct(on bool) bool
	// Sync makes the content of the file durable; if full is set, its times as well.
	Sync(full bool) error
	// Uncache makes the next reads return what the disk has, if it can.
	Uncache()
	// TryLock locks the file against other open file descriptions of it until Close. It
	// returns false if another one has the lock.
	TryLock() (bool, error)
	// Check returns an error if the file's name no longer refers to this file.
	Check() error
}

// Store is the directory of a log.
type Store interface {
	List() ([]string, error)
	// Create creates a file, or truncates an existing one.
	Create(name string) (File, error)
	Open(name string, write bool) (File, error)
	Rename(from, to string) error
	Remove(name string) error
	// Sync makes created, renamed and removed files durable.
	Sync() error
	// Path returns the name for messages.
	Path(name string) string
	Close() error
}

// Wrap, if not nil, replaces the store of each log that is opened. A test sets it before it
// opens logs and resets it afterwards.
var Wrap func(Store) Store

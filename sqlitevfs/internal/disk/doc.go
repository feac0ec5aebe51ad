// SPDX-License-Identifier: MIT

// Package disk is the file interface of the group log, and of what the VFS does beside
// the file calls of SQLite: open, write, sync, rename, remove, and sync a directory. [OS]
// is the operating system. Tests replace it by a recorder or by an injector of faults,
// and so see and control everything that durability depends on.
package disk

import (
	"io"
	"io/fs"
)

// Flag selects how a file is opened. The zero value opens an existing file for reading
// and writing.
type Flag int

const (
	// Create creates the file when it is missing.
	Create Flag = 1 << iota
	// Exclusive, with Create, fails when the file exists.
	Exclusive
	// ReadOnly opens for reading.
	ReadOnly
	// Durable makes each write durable before it returns, past the page cache
	// where the file system can do that: offset, length and address of what is
	// written must be multiples of [Block] then, and the file must be as long
	// already. Only these bytes are durable, not those of other writes.
	Durable
)

// Block is the unit of durable writes, in bytes.
const Block = 4096

// ID identifies a file as long as it exists.
type ID struct{ Device, Inode uint64 }

// FS changes names. Its methods may be called concurrently. Errors are
// *fs.PathError, or *os.LinkError for Rename.
type FS interface {
	// Open opens a file; perm is used when it is created. On Linux a name that
	// is a symbolic link is refused.
	Open(name string, flag Flag, perm fs.FileMode) (File, error)
	// Lookup returns which file has a name.
	Lookup(name string) (ID, error)
	// List returns the names in a directory, in their order.
	List(dir string) ([]string, error)
	Remove(name string) error
	Rename(oldname, newname string) error
	// SyncDir makes the entries of a directory durable: what was created,
	// renamed and removed in it before the call.
	SyncDir(dir string) error
}

// File is an open file. Its methods may be called concurrently, except Close.
// Buffers are the caller's again when a call returns.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	// Sync makes data and size durable, and forgets no failure: once it failed
	// it is not known what is on the disk.
	Sync() error
	Size() (int64, error)
	ID() (ID, error)
	// TryLock takes an exclusive lock on n bytes from off, against every other
	// open file, in this process too; false if there is a lock already.
	// Closing the file releases it. Where the system has no such locks it
	// answers errors.ErrUnsupported.
	TryLock(off, n int64) (bool, error)
}

// OS is the operating system's file systems.
var OS FS = osFS{}

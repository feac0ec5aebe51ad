// SPDX-License-Identifier: MIT

// Package disk is the file interface of the group log, and of the calls that the VFS makes besides
// the file calls of SQLite: open, write, sync, rename, remove, and sync a directory.
//
// [OS] is the operating system. Tests replace it with a recorder or a fault injector, and so
// observe and control everything on which durability depends.
package disk

import (
	"io"
	"io/fs"
	"time"
)

// Flag selects how a file is opened. The zero value opens an existing file for reading
// and writing.
type Flag int

const (
	// Create creates the file if it does not exist.
	Create Flag = 1 << iota
	// Exclusive, with Create, returns an error if the file exists.
	Exclusive
	// ReadOnly opens for reading.
	ReadOnly
	// Durable makes each write durable before it returns, bypassing the page cache if the file
	// system supports that. Offset, length and address of a write must then be multiples of
	// [Block], and the file must already be that long. Only these bytes become durable, not those
	// of other writes.
	Durable
)

// Block is the unit of durable writes, in bytes.
const Block = 4096

// ID identifies a file for its lifetime. Born tells it from a file that had the inode before.
type ID struct {
	Device, Inode uint64
	Born          int64 // nanoseconds; 0 if the file system does not record it
}

// State is what changes when a file is written, renamed or replaced.
type State struct {
	ID      ID
	Size    int64
	Changed int64 // when the inode was changed, in nanoseconds; no call sets it
}

// FS opens, lists, renames and removes files. Its methods may be called concurrently. Errors are
// *fs.PathError, or *os.LinkError for Rename.
type FS interface {
	// Open opens a file; perm is used if it is created. On Linux a name that is a symbolic link is
	// an error.
	Open(name string, flag Flag, perm fs.FileMode) (File, error)
	// Lookup returns the identity of the file with a name.
	Lookup(name string) (ID, error)
	// State returns the state of the file with a name. Two changes within the resolution of Changed, which is a second on
	// old file systems, may have the same time.
	State(name string) (State, error)
	// List returns the names in a directory, sorted.
	List(dir string) ([]string, error)
	Remove(name string) error
	Rename(oldname, newname string) error
	// SyncDir makes the entries of a directory durable: all files created, renamed and removed in
	// it before the call.
	SyncDir(dir string) error
}

// File is an open file. Its methods may be called concurrently, except Close. No method uses a
// buffer after it returns.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	// Sync makes data and size durable. After a failure the content on the disk is unknown, even if
	// a later Sync returns nil.
	Sync() error
	Size() (int64, error)
	ID() (ID, error)
	// Times returns when the file was last written, and a number for the mount through which it was opened, which
	// no other mount has; 0 if that is not known.
	Times() (written time.Time, mount uint64, err error)
	// Uncache makes the next reads return what the disk has, if it can.
	Uncache()
	// TryLock takes an exclusive lock on n bytes from off, against every other open file, including
	// those of this process. It returns false if another file has a lock there. Closing the file
	// releases the lock. On a system without such locks it returns errors.ErrUnsupported.
	TryLock(off, n int64) (bool, error)
}

// OS is the operating system's file systems.
var OS FS = osFS{}

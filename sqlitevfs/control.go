// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"
)

// The file controls of SQLite. A control that the base does not support has the same result
// as without the wrapper.

func (f *file) LockState() vfs.LockLevel     { return vfsutil.WrapLockState(f.File) }
func (f *file) PersistWAL() bool             { return vfsutil.WrapPersistWAL(f.File) }
func (f *file) SetPersistWAL(keep bool)      { vfsutil.WrapSetPersistWAL(f.File, keep) }
func (f *file) PowersafeOverwrite() bool     { return vfsutil.WrapPowersafeOverwrite(f.File) }
func (f *file) SetPowersafeOverwrite(b bool) { vfsutil.WrapSetPowersafeOverwrite(f.File, b) }
func (f *file) SyncSuper(name string) error  { return vfsutil.WrapSyncSuper(f.File, name) }
func (f *file) BusyHandler(fn func() bool)   { vfsutil.WrapBusyHandler(f.File, fn) }

// HasMoved reports whether the name of the file now refers to another file or to none. SQLite asks
// before each rollback journal.
func (f *file) HasMoved() (bool, error) {
	if f.fd >= 0 && f.name != "" {
		if same, err := isAt(f.fd, f.name); err == nil {
			return !same, nil
		}
	}
	return vfsutil.WrapHasMoved(f.File)
}

// CommitPhaseTwo is called for a database at the end of each transaction that was committed, in all modes.
func (f *file) CommitPhaseTwo() error {
	if f.beside != nil {
		f.beside.tellCommit()
	}
	return vfsutil.WrapCommitPhaseTwo(f.File)
}

// CheckpointStart and CheckpointDone enclose the writes of a checkpoint.
func (f *file) CheckpointStart() {
	f.checkpoint, f.walSynced = true, false
	vfsutil.WrapCheckpointStart(f.File)
}

func (f *file) CheckpointDone() {
	f.checkpoint, f.walSynced = false, false
	vfsutil.WrapCheckpointDone(f.File)
}

// SharedMemory returns the base's value, because the interface is sealed. The driver calls it for each
// operation on the WAL's index.
func (f *file) SharedMemory() vfs.SharedMemory {
	if f.beside != nil {
		ended := f.beside.frames.ended
		f.beside.frames.indexUsed(f.beside.File)
		if ended {
			f.beside.tellCommit() // without a sync before
		}
	}
	return vfsutil.WrapSharedMemory(f.File)
}

// MemoryMapper returns the base's value, because the interface is sealed.
func (f *file) MemoryMapper() vfs.MemoryMapper { return vfsutil.WrapMemoryMapper(f.File) }

// ChunkSize makes the file grow and shrink by multiples of size bytes, as SQLite's own VFS
// does. The default VFS of the driver does not support it.
func (f *file) ChunkSize(size int) {
	f.chunk = int64(max(size, 0))
	vfsutil.WrapChunkSize(f.File, size)
}

// chunks rounds a size up to whole chunks.
func (f *file) chunks(size int64) int64 {
	if f.chunk <= 1 {
		return size
	}
	return (size + f.chunk - 1) / f.chunk * f.chunk
}

// SizeHint makes room for a file that will grow.
func (f *file) SizeHint(size int64) error { return vfsutil.WrapSizeHint(f.File, f.chunks(size)) }

// Overwrite is called before the whole file is written anew (VACUUM). The prefetcher
// forgets its B-trees.
func (f *file) Overwrite() error {
	if f.prefetch != nil {
		f.prefetch.forget()
	}
	return vfsutil.WrapOverwrite(f.File)
}

// Pragma returns the counters of the database for PRAGMA ringside.
func (f *file) Pragma(name, value string) (string, error) {
	if name != pragma {
		return vfsutil.WrapPragma(f.File, name, value)
	}
	if f.db == nil || value != "" {
		return "", sqlite3.MISUSE
	}
	return f.db.stats().String(), nil
}

const pragma = "ringside"

// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime/trace"
	"sync"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/ringside-io/ringside/internal/sys"
)

// file is a database, its journal or its WAL. The base provides locks, shared memory and
// writes. One goroutine at a time uses a file.
type file struct {
	vfs.File   // the file of the base
	vfs        *ringVFS
	db         *database // nil for a super-journal
	name       string
	fd         int // -1 when the base is not the default VFS
	flags      vfs.OpenFlag
	owner      bool          // it is the database itself
	entry      bool          // its directory entry is not known to be durable
	made       bool          // this connection made it, and a sync of the file covers its entry and earlier removals
	shares     bool          // the groups of the database can sync it
	chunk      int64         // bytes, see ChunkSize
	prefetch   *prefetcher   // nil without prefetch
	frames     *frameWriter  // nil if it is no WAL
	wal        *walFile      // nil if it is no WAL, or has no log
	absent     *vfs.Filename // of a WAL that has not been made; nil otherwise
	main       *file         // the database of this journal or WAL; nil if it is not known
	beside     *file         // the WAL of this database, while this connection has it open
	checkpoint bool          // this connection is running a checkpoint
	walSynced  bool          // the WAL was synced for the running checkpoint
	closing    sync.Once
}

var (
	_ vfs.FileUnwrap             = (*file)(nil)
	_ vfs.FileLockState          = (*file)(nil)
	_ vfs.FilePersistWAL         = (*file)(nil)
	_ vfs.FilePowersafeOverwrite = (*file)(nil)
	_ vfs.FileChunkSize          = (*file)(nil)
	_ vfs.FileSizeHint           = (*file)(nil)
	_ vfs.FileHasMoved           = (*file)(nil)
	_ vfs.FileOverwrite          = (*file)(nil)
	_ vfs.FileSync               = (*file)(nil)
	_ vfs.FileCommitPhaseTwo     = (*file)(nil)
	_ vfs.FileCheckpoint         = (*file)(nil)
	_ vfs.FilePragma             = (*file)(nil)
	_ vfs.FileBusyHandler        = (*file)(nil)
	_ vfs.FileSharedMemory       = (*file)(nil)
	_ vfs.FileMemoryMapper       = (*file)(nil)
)

// Unwrap returns the file of the base.
func (f *file) Unwrap() vfs.File { return f.File }

// Close closes the file. SQLite calls it once. The file control SQLITE_FCNTL_NULL_IO, which
// is for benchmarks, calls it earlier as well.
func (f *file) Close() error {
	var err error
	f.closing.Do(func() {
		if f.prefetch != nil {
			f.prefetch.close()
		}
		err = f.frames.flush(f.File)
		if f.main != nil && f.main.beside == f {
			f.main.beside = nil
		}
		if f.wal != nil {
			err = errors.Join(err, f.wal.close())
		}
		if f.owner {
			f.vfs.dbs.release(f.db)
		}
	})
	if cerr := f.File.Close(); err == nil {
		err = cerr
	}
	return err
}

// need makes a WAL that is absent if it is to be written, or if the database is no longer locked so that another
// connection may have made it.
func (f *file) need(write bool) error {
	if f.absent == nil || !write && f.exclusive() {
		return nil
	}
	base, _, err := vfsutil.WrapOpenFilename(f.vfs.VFS, f.absent, f.flags|vfs.OPEN_EXCLUSIVE)
	made := err == nil
	if !made {
		base, _, err = vfsutil.WrapOpenFilename(f.vfs.VFS, f.absent, f.flags)
	}
	if err != nil {
		return vfs.SystemError(err, sqlite3.CANTOPEN)
	}
	f.File, f.fd, f.absent = base, descriptor(base), nil
	f.entry, f.shares = !f.db.durable(f.id), f.db.shares(f.fd)
	says := ordered(f.vfs.VFS)
	f.made = made && (f.shares && !f.db.group.leavesRemovals || says)
	f.frames.fresh = made && f.exclusive() && (f.shares && !f.db.group.needsFlush || says)
	f.startLog()
	return nil
}

// ordered reports whether a base says that a sync of a new file covers its entry and what was removed from its directory
// before, and that the file has no old content after a power cut. The default VFS does not say it: see database.shares.
func ordered(base vfs.VFS) bool {
	b, ok := base.(interface{ Ordered() bool })
	return ok && b.Ordered()
}

// nothingToSync reports whether a sync of a WAL would make nothing durable that matters: no other connection can write
// it, and this one has written nothing since its last sync, or only the header of a new file. SQLite syncs the header by
// itself lest it and frames of an earlier life of the WAL be on the disk together; a new file has no such frames, where the
// file system keeps the content of removed files out of it (ext4 with a journal, which needs no flush, and Btrfs). It
// also syncs the WAL before each checkpoint, as there may be commits with synchronous=NORMAL.
func (f *file) nothingToSync() bool {
	return f.frames != nil && (f.frames.fresh || f.frames.clean && !f.entry) && f.exclusive()
}

// startLog begins to recognise the commits of a WAL, if the database uses a log.
func (f *file) startLog() {
	var syncData func() error
	if f.fd >= 0 {
		syncData = func() error { _, err := f.syncData(); return err }
	}
	f.wal = newWALFile(f, syncData)
}

// ReadAt reads from the file. With prefetch it reads cached pages with a raw system call, without entering
// the scheduler, and prefetch may begin while the disk reads a page that is not cached.
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	if f.prefetch == nil {
		if err := f.need(false); err != nil {
			return 0, err
		}
		if f.frames.holds(off, len(p)) {
			if err := f.frames.flush(f.File); err != nil {
				return 0, err
			}
		}
		n, err := f.File.ReadAt(p, off)
		if off == 0 && f.ahead(n) {
			return f.reread(p)
		}
		return n, err
	}
	return f.prefetch.readAt(p, off)
}

// Size returns the size of the file.
func (f *file) Size() (int64, error) {
	if err := f.need(false); err != nil {
		return 0, err
	}
	if err := f.frames.flush(f.File); err != nil {
		return 0, err
	}
	return f.File.Size()
}

// WriteAt writes through the page cache. Before it writes to a database, it makes the WAL
// durable without the log.
func (f *file) WriteAt(p []byte, off int64) (int, error) {
	if f.owner {
		if err := f.syncWAL(); err != nil {
			return 0, err
		}
		f.changing(Piece{off, int64(len(p))})
	}
	if f.frames == nil {
		n, err := f.File.WriteAt(p, off)
		if f.flags&vfs.OPEN_MAIN_JOURNAL != 0 && off == 0 && len(p) > 0 && p[0] == 0 {
			f.db.changed() // journal_mode=PERSIST
		}
		return n, err
	}
	if err := f.need(true); err != nil {
		return 0, err
	}
	if off == 0 {
		f.restarting()
	}
	n, err := f.frames.writeAt(f.File, p, off)
	if f.wal != nil {
		f.wal.wrote(p[:n], off)
	}
	return n, err
}

// syncWAL syncs the WAL before the database changes, if some commits of the WAL are durable
// in the log only. One sync for each checkpoint is enough, because the commits of a
// checkpoint are fixed when it starts.
func (f *file) syncWAL() error {
	if f.walSynced {
		return nil
	}
	if err := f.db.commits.syncWAL(); err != nil {
		f.db.fail(err)
		f.beside.failed()
		return vfs.SystemError(err, sqlite3.IOERR_FSYNC)
	}
	f.walSynced = f.checkpoint
	return nil
}

// Truncate sets the size of the file, rounded up to a multiple of the chunk size if there is
// one.
func (f *file) Truncate(size int64) error {
	if f.owner {
		if err := f.syncWAL(); err != nil {
			return err
		}
		f.changing(Piece{size, 0})
	}
	if err := f.frames.flush(f.File); err != nil {
		return err
	}
	if f.wal != nil {
		f.wal.truncated(size)
	}
	if f.frames != nil {
		f.frames.changed()
		if size == 0 {
			f.restarting()
		}
	}
	err := f.File.Truncate(f.chunks(size))
	if f.flags&vfs.OPEN_MAIN_JOURNAL != 0 && size == 0 && err == nil {
		f.db.changed() // journal_mode=TRUNCATE
	}
	return err
}

// Sync makes the file durable, and its directory entry if the entry is not known to be
// durable.
func (f *file) Sync(flags vfs.SyncFlag) error {
	err := f.makeDurable(flags)
	switch {
	case f.frames == nil:
	case err == nil:
		f.tellCommit()
	default: // SQLite rolls the transaction back
		f.frames.commit = 0
	}
	return err
}

func (f *file) makeDurable(flags vfs.SyncFlag) error {
	if err := cmp.Or(f.refusal(), f.stillStale()); err != nil {
		return vfs.SystemError(err, sqlite3.IOERR_FSYNC)
	}
	if f.db != nil {
		f.db.synced.Store(true)
		if f.flags&vfs.OPEN_MAIN_JOURNAL != 0 {
			f.db.journalSyncs.Add(1)
		}
	}
	if f.nothingToSync() {
		return nil
	}
	removals := f.frames != nil && f.entry && f.shares && f.db.group.leavesRemovals // that of a journal must not be durable later
	if removals {
		if err := f.syncEntry(); err != nil {
			return err
		}
	}
	all, err := f.sync(flags)
	if err != nil {
		f.db.fail(err)
		f.failed()
		return vfs.SystemError(err, sqlite3.IOERR_FSYNC)
	}
	if !f.entry {
		return nil
	}
	if !all && !f.made && !removals {
		if err := f.syncEntry(); err != nil {
			return err
		}
	}
	f.entry = false
	if f.made {
		return nil
	}
	if id := f.id(); f.db != nil && !f.owner && id.unique() {
		f.db.entry.Store(&id)
	}
	return nil
}

// syncEntry makes the entries of the file's directory durable.
func (f *file) syncEntry() error {
	if f.options().DirSync == Off {
		return nil
	}
	return f.vfs.syncDir(f.db, filepath.Dir(f.name))
}

func (f *file) id() identity {
	if f.fd < 0 {
		return identity{}
	}
	return identify(f.fd)
}

// sync makes the file's data durable. all reports whether the whole file system was
// synced.
func (f *file) sync(flags vfs.SyncFlag) (all bool, err error) {
	if f.options().Trace {
		defer trace.StartRegion(context.Background(), "sqlitevfs.sync").End()
	}
	f.db.count(func(c *counters) { c.syncs.Add(1) })
	if err := f.frames.flush(f.File); err != nil {
		return false, err
	}
	logged := false
	if f.frames != nil {
		defer func() {
			f.frames.ends = 0
			f.frames.clean = err == nil && !logged && f.exclusive()
		}()
	}
	if f.db != nil && f.flags&vfs.OPEN_WAL != 0 {
		f.db.walMode.Store(true)
	}
	if f.wal != nil {
		handle, err := f.wal.handle()
		if err != nil {
			return false, err
		}
		if handle != nil {
			if f.options().Trace {
				defer trace.StartRegion(context.Background(), "sqlitevfs.commit").End()
			}
			if logged, err = f.wal.commit(handle); !errors.Is(err, os.ErrClosed) {
				return false, err
			}
			// Meanwhile another connection has detached the WAL, because the log failed.
		}
	}
	if all, err = f.syncWithoutLog(flags); err == nil && f.wal != nil {
		err = f.wal.synced()
	}
	return all, err
}

// syncWithoutLog makes the file's data durable by a sync, which may be that of the whole file system.
func (f *file) syncWithoutLog(flags vfs.SyncFlag) (all bool, err error) {
	if f.fd < 0 {
		return false, f.File.Sync(flags)
	}
	return f.syncData()
}

// syncData makes the data of a file of the default VFS durable without the log. It uses a
// shared sync where that is faster. In WAL mode it shares none unless group sync is forced: a WAL
// grows, and the log gains more.
func (f *file) syncData() (all bool, err error) {
	if !f.shares || f.db.walMode.Load() && !f.db.group.forced {
		return false, sys.Fdatasync(f.fd)
	}
	how, err := f.db.group.sync(f.db, f.fd)
	if how.shared {
		f.db.shared.Add(1)
	}
	if how.led {
		f.db.syncfs.Add(1)
	}
	return how.shared, err
}

func (f *file) options() *Options {
	if f.db != nil {
		return &f.db.opts
	}
	return &f.vfs.opts
}

// DeviceCharacteristics leaves out batch-atomic writes. With them SQLite, as this driver
// builds it, does not raise the file change counter, so other connections keep stale pages.
// Atomic writes are reported only if the user requested them.
func (f *file) DeviceCharacteristics() vfs.DeviceCharacteristic {
	c := f.File.DeviceCharacteristics() &^ (vfs.IOCAP_BATCH_ATOMIC | atomicWrites)
	if f.owner && f.options().Atomic4K != AtomicOff {
		c |= vfs.IOCAP_ATOMIC4K
	}
	return c
}

const atomicWrites = vfs.IOCAP_ATOMIC | vfs.IOCAP_ATOMIC512 | vfs.IOCAP_ATOMIC1K | vfs.IOCAP_ATOMIC2K |
	vfs.IOCAP_ATOMIC4K | vfs.IOCAP_ATOMIC8K | vfs.IOCAP_ATOMIC16K | vfs.IOCAP_ATOMIC32K | vfs.IOCAP_ATOMIC64K

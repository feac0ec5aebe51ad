// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"strings"
	"sync"

	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/sqlitevfs/internal/grouplog"
)

// After a failed sync the page cache has what the disk lacks, and the kernel counts the pages as written: a
// later sync would return nil. So the committed frames of the WAL are written again at once, and become dirty
// pages that the next sync of any process writes. The frames of the commit that failed are cut off, as SQLite
// has given them up. A process that opens the WAL later then finds the commits that this process has, and no others.
//
// In a rollback mode a database whose sync failed has a hot journal, or for an atomic write a journal in memory, which
// restores each page that was written. A journal whose sync failed belongs to a transaction that has not written the
// database, unless that sync was the commit: it makes durable that the journal is no longer hot. The header is then
// written and synced again, as the next transaction overwrites the journal that the disk still has.

// stale has the names of WALs that could not be written again after a failed sync.
var stale sync.Map

var (
	errBroken = errors.New("frames of the WAL were lost after a failed sync")
	errIndex  = errors.New("the index of the WAL is being changed")
	// errSameBlocks refuses no sync: the frames need other blocks, which they get when this process has the writer's lock.
	errSameBlocks = errors.New("the frames of the WAL are in the blocks for which a write has failed")
)

// failed is called after a failed sync. The caller is in a sync, or writes the database: SQLite then holds a
// lock with which no other connection changes the committed frames.
func (f *file) failed() {
	switch {
	case f == nil || f.db == nil:
		return
	case f.flags&vfs.OPEN_MAIN_JOURNAL != 0:
		f.renewHeader()
		return
	case f.owner:
		f.uncache()
		return
	case f.frames == nil:
		return
	}
	if end, ours := f.renew(); ours {
		f.frames.forget(false)
		f.cutOff(end)
	}
}

// uncache drops the database from the page cache, which has what the disk lacks. No connection reads that from the
// database: it is in the WAL, or the journal is hot. A later checkpoint writes it again, and ext4 loses what is written
// again, and still cached, to blocks that were allocated for a write which failed.
func (f *file) uncache() {
	if f.fd >= 0 {
		sys.Uncache(f.fd)
	}
}

// ahead reports whether SQLite has read n bytes at the beginning of a journal or WAL of which the page cache may have
// what the disk lacks, because a process was killed within a failed sync. SQLite reads the header of a WAL only when it
// recovers the WAL, with all locks of the WAL, and one byte of a rollback journal to find out whether it is hot,
// with the shared lock of the database. So no connection is in a sync. SQLite asks for the byte in each transaction: only
// the first answer counts.
func (f *file) ahead(n int) bool {
	switch {
	case f.fd < 0 || f.main == nil:
		return false
	case f.flags&vfs.OPEN_MAIN_JOURNAL != 0:
		return n == 1 && f.db.journalRead.CompareAndSwap(false, true)
	}
	return f.frames != nil && n == walHeaderSize
}

// reread reads the beginning from the disk. With a WAL or a hot journal the database may be ahead of the disk, too.
func (f *file) reread(p []byte) (int, error) {
	f.uncache()
	n, err := f.File.ReadAt(p, 0)
	if n > 0 && p[0] != 0 {
		f.main.uncache()
	}
	return n, err
}

// maxSector is the largest size of the header of a rollback journal.
const maxSector = 64 << 10

// renewHeader writes and syncs the header of a rollback journal again.
func (f *file) renewHeader() {
	size, err := f.File.Size()
	if err != nil {
		return
	}
	p := make([]byte, min(size, maxSector))
	if n, _ := f.File.ReadAt(p, 0); n < len(p) {
		return
	}
	if _, err := f.File.WriteAt(p, 0); err == nil {
		_ = f.File.Sync(vfs.SYNC_NORMAL)
	}
}

// renew writes the committed frames again. It returns what committed does.
func (f *file) renew() (end int64, ours bool) {
	f.frames.changed()
	alone := f.frames.ended || f.exclusive()
	if !alone {
		unlock, ok := lockWriter(indexName(f.name))
		defer unlock()
		alone = ok
	}
	end, ours, err := f.committed()
	if err == nil {
		err = f.rewrite(end, alone)
	}
	if err != nil {
		stale.Store(f.name, err)
		if err != errSameBlocks {
			f.db.opts.logger().Error("sqlitevfs: the WAL could not be written again after a failed sync", "wal", f.name, "error", err)
		}
		return end, ours
	}
	stale.Delete(f.name)
	if wal := f.db.commits.attached(); wal != nil && sameFile(f.wal.identity(), wal) {
		wal.Renewed()
	}
	return end, ours
}

// rewrite writes the frames up to end again. Ext4 loses what is written again to blocks that were allocated for a write
// which failed: frames in such blocks get others. Where another connection may be writing, they keep theirs, and the
// error is errSameBlocks.
func (f *file) rewrite(end int64, alone bool) error {
	lost := f.unwritten(end)
	if alone || lost == noBlock {
		return rewriteFrames(f.File, end, lost)
	}
	if err := rewriteFrames(f.File, end, noBlock); err != nil {
		return err
	}
	return errSameBlocks
}

// stillStale writes a WAL again that an earlier renew could not write, before its next sync.
func (f *file) stillStale() error {
	if _, ok := stale.Load(f.name); !ok || f.frames == nil {
		return nil
	}
	f.renew()
	if err, ok := stale.Load(f.name); ok && err != errSameBlocks {
		return err.(error)
	}
	return nil
}

// committed returns where the committed frames end, according to the WAL's index. It is -1 if that is not known, but the
// connection may write the whole file. ours reports that the frames behind the end are those of a commit of this connection,
// which still has the lock of the writer.
func (f *file) committed() (end int64, ours bool, err error) {
	if f.exclusive() {
		return -1, false, nil
	}
	var head [walHeaderSize]byte
	if n, err := f.File.ReadAt(head[:], 0); n < len(head) {
		return 0, false, errors.Join(errBroken, err)
	}
	h, err := grouplog.ParseHeader(head[:])
	if err != nil {
		return 0, false, err
	}
	frames, salt, err := indexed(f.name)
	switch {
	case err != nil && f.frames.ended:
		return -1, false, nil
	case err != nil:
		return 0, false, err
	case salt != h.Salt: // this life of the WAL has no commit yet
		return walHeaderSize, f.frames.ended, nil
	}
	return walHeaderSize + int64(frames)*(frameHeaderSize+int64(h.PageSize)), f.frames.ended, nil
}

// exclusive reports whether the connection has locked the database against all others. It does so for the checkpoint of
// the last close, and where SQLite keeps the index of the WAL in its own memory.
func (f *file) exclusive() bool {
	main := f.main
	if f.owner {
		main = f
	}
	return main != nil && main.LockState() == vfs.LOCK_EXCLUSIVE
}

// indexed reads the number of committed frames, and the salts of the WAL, from the WAL's index,
// https://www.sqlite.org/walformat.html#the_wal_index_header
func indexed(wal string) (frames uint32, salt [8]byte, err error) {
	const size = 48
	shm, err := os.Open(indexName(wal))
	if err != nil {
		return 0, salt, err
	}
	defer shm.Close()
	var p [2 * size]byte
	if _, err := io.ReadFull(shm, p[:]); err != nil {
		return 0, salt, err
	}
	if [size]byte(p[:size]) != [size]byte(p[size:]) {
		return 0, salt, errIndex
	}
	return binary.NativeEndian.Uint32(p[16:]), [8]byte(p[32:]), nil
}

// indexName returns the name of the file with the index of a WAL.
func indexName(wal string) string { return strings.TrimSuffix(wal, suffixWAL) + "-shm" }

// noBlock is behind all blocks.
const noBlock = math.MaxInt64

// unwritten returns the offset of the first block before end, or in the whole WAL if end is -1, that has frames in the
// page cache and zeros on the disk. It is noBlock if there is none, or if that cannot be seen.
func (f *file) unwritten(end int64) int64 {
	if end < 0 {
		end, _ = f.File.Size()
	}
	if f.fd >= 0 {
		if off, err := unwrittenBlock(f.fd, f.File, end); err == nil && off < end {
			return off
		}
	}
	return noBlock
}

// rewriteFrames writes a WAL again up to an offset, or all of it if end is -1. What lies behind fresh gets other blocks.
// It returns errBroken, and leaves the rest, if the page cache has lost a committed frame.
func rewriteFrames(f vfs.File, end, fresh int64) (err error) {
	var check grouplog.Frames
	known := end >= 0
	if !known {
		if end, err = f.Size(); err != nil {
			return err
		}
	}
	p := make([]byte, min(end, maxFrames))
	for off := int64(0); off < end; {
		p := p[:min(end-off, int64(len(p)))]
		if n, err := f.ReadAt(p, off); n < len(p) {
			return errors.Join(errBroken, err)
		}
		if known && !check.Add(p) {
			return errBroken
		}
		if kept := min(int64(len(p)), fresh-off); kept > 0 {
			if _, err := f.WriteAt(p[:kept], off); err != nil {
				return err
			}
		}
		off += int64(len(p))
	}
	if fresh >= end {
		return nil
	}
	return moveTail(f, fresh)
}

// moveTail gives other blocks to what lies behind an offset. A reader that comes meanwhile gets an error.
func moveTail(f vfs.File, from int64) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	tail := make([]byte, size-from)
	if n, err := f.ReadAt(tail, from); n < len(tail) {
		return errors.Join(errBroken, err)
	}
	if err := f.Truncate(from); err != nil {
		return err
	}
	_, err = f.WriteAt(tail, from)
	return err
}

// cutOff removes the frames from an offset on, which are those of a commit that may be there or not. Later frames get
// other blocks.
func (f *file) cutOff(end int64) {
	if size, err := f.File.Size(); err == nil && size > end {
		_ = f.File.Truncate(end)
	}
}

// refusal returns why a sync is refused: an earlier one has failed. The checkpoint of the last close may still sync, as
// the WAL was written again. It puts into the database what SQLite considers as committed.
func (f *file) refusal() error {
	err := f.db.failure()
	wal := f
	if f.owner {
		wal = f.beside
	}
	switch {
	case err == nil || wal == nil || wal.frames == nil:
		return err
	case wal.frames.ended: // a commit
		_ = wal.stillStale()
		if end, ours, _ := wal.committed(); ours {
			wal.cutOff(end)
		}
		return err
	case !f.db.walMode.Load() || !f.exclusive():
		return err
	}
	return nil
}

// SPDX-License-Identifier: MIT

package replica

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/trace"
	"slices"
	"strings"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"
)

// nodeVFS opens the databases of a node. It wraps the driver's own VFS.
type nodeVFS struct {
	vfs.VFS
	node *Node
}

// closedVFS takes the place of a node's VFS when the node is closed. Without it, SQLite's driver would panic
// in calls that other goroutines make at that time.
type closedVFS struct{ vfs.VFS }

func (closedVFS) Open(_ string, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	return nil, flags, vfs.SystemError(net.ErrClosed, sqlite3.CANTOPEN)
}

func (closedVFS) Delete(string, bool) error {
	return vfs.SystemError(net.ErrClosed, sqlite3.IOERR_DELETE)
}

// The parameters of a database's URI: the role of a connection, and its token.
const (
	paramConn  = "conn"
	paramRole  = "role"
	roleWriter = "writer" // of Node.Open, on the leader
	roleKeeper = "keeper" // of a pageFile: recovers and checkpoints
)

func (v *nodeVFS) Open(name string, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	if name == "" {
		return v.OpenFilename(nil, flags)
	}
	return vfsutil.WrapOpen(v.VFS, name, flags)
}

func (v *nodeVFS) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	if flags&(vfs.OPEN_MAIN_JOURNAL|vfs.OPEN_SUPER_JOURNAL) != 0 {
		return nil, flags, vfs.SystemError(errOnlyWAL, sqlite3.CANTOPEN)
	}
	if name == nil || flags&(vfs.OPEN_MAIN_DB|vfs.OPEN_WAL) == 0 {
		return vfsutil.WrapOpenFilename(v.VFS, name, flags)
	}
	if flags&vfs.OPEN_WAL != 0 {
		base, out, err := vfsutil.WrapOpenFilename(v.VFS, name, flags)
		if err != nil {
			return nil, out, err
		}
		main, ok := vfsutil.UnwrapFile[*mainFile](name.DatabaseFile())
		if !ok || main.role != roleWriter {
			return &plainWAL{base, v.node, name.String()}, out, nil
		}
		shm, err := os.OpenFile(strings.TrimSuffix(name.String(), "-wal")+"-shm", os.O_RDWR, 0)
		if err != nil {
			return nil, out, vfs.SystemError(errors.Join(err, base.Close()), sqlite3.CANTOPEN)
		}
		return &walFile{File: base, db: main.db, conn: main.conn, shm: shm}, out, nil
	}
	db := v.node.catalog.atPath(name.String())
	if db == nil {
		return nil, flags, vfs.SystemError(fmt.Errorf("replica: %s is not a database of this node: %w", name, os.ErrNotExist), sqlite3.CANTOPEN)
	}
	base, out, err := vfsutil.WrapOpenFilename(v.VFS, name, flags&^vfs.OPEN_CREATE)
	if err != nil {
		return nil, out, err
	}
	f := &mainFile{File: base, db: db, role: name.URIParameter(paramRole)}
	if k, ok := v.node.sessions.connecting.Load(name.URIParameter(paramConn)); ok {
		f.conn = k.(*conn)
	} else if f.role == roleWriter {
		f.role = "" // the connection is not from Node.Open
	}
	if f.role != roleWriter && f.role != roleKeeper {
		out = out&^vfs.OPEN_READWRITE | vfs.OPEN_READONLY
	}
	return f, out, nil
}

// Delete refuses to remove a WAL: a connection may be open to a file that was replaced, and
// would remove that of its successor.
func (v *nodeVFS) Delete(name string, syncDir bool) error {
	if strings.HasSuffix(name, "-wal") {
		return vfs.SystemError(errOnlyWAL, sqlite3.IOERR_DELETE)
	}
	return v.VFS.Delete(name, syncDir)
}

var errOnlyWAL = errors.New("replica: the database is replicated in WAL mode, which stays on")

// mainFile is a database file.
type mainFile struct {
	vfs.File
	db         *database
	role       string
	conn       *conn // nil if the connection is not from Node.Open
	checkpoint bool
}

var (
	_ vfs.FileUnwrap             = (*mainFile)(nil)
	_ vfs.FileLockState          = (*mainFile)(nil)
	_ vfs.FilePersistWAL         = (*mainFile)(nil)
	_ vfs.FilePowersafeOverwrite = (*mainFile)(nil)
	_ vfs.FileCheckpoint         = (*mainFile)(nil)
	_ vfs.FilePragma             = (*mainFile)(nil)
	_ vfs.FileSharedMemory       = (*mainFile)(nil)
	_ vfs.FileSizeHint           = (*mainFile)(nil)
	_ vfs.FileBusyHandler        = (*mainFile)(nil)
)

func (f *mainFile) Unwrap() vfs.File           { return f.File }
func (f *mainFile) LockState() vfs.LockLevel   { return vfsutil.WrapLockState(f.File) }
func (f *mainFile) PersistWAL() bool           { return true }
func (f *mainFile) SetPersistWAL(bool)         {}
func (f *mainFile) PowersafeOverwrite() bool   { return true } // a commit is then one sync
func (f *mainFile) SetPowersafeOverwrite(bool) {}
func (f *mainFile) SizeHint(n int64) error     { return vfsutil.WrapSizeHint(f.File, n) }
func (f *mainFile) BusyHandler(fn func() bool) { vfsutil.WrapBusyHandler(f.File, fn) }

func (f *mainFile) DeviceCharacteristics() vfs.DeviceCharacteristic {
	return f.File.DeviceCharacteristics()&^vfs.IOCAP_BATCH_ATOMIC | vfs.IOCAP_POWERSAFE_OVERWRITE
}

func (f *mainFile) Sync(flags vfs.SyncFlag) error {
	return f.db.node.opts.disk.sync(f.db.path, func() error { return f.File.Sync(flags) })
}

func (f *mainFile) SharedMemory() vfs.SharedMemory { return vfsutil.WrapSharedMemory(f.File) }

// CheckpointStart and CheckpointDone enclose the only writes to the database. A checkpoint
// truncates the file after that.
func (f *mainFile) CheckpointStart() { f.checkpoint = true }
func (f *mainFile) CheckpointDone()  { f.checkpoint = false }

func (f *mainFile) WriteAt(p []byte, off int64) (int, error) {
	if !f.checkpoint {
		return 0, vfs.SystemError(errOnlyWAL, sqlite3.IOERR_WRITE)
	}
	return f.File.WriteAt(p, off)
}

// Pragma refuses pragmas with which commits would bypass the sync of the WAL.
func (f *mainFile) Pragma(name, value string) (string, error) {
	v := strings.ToLower(strings.Trim(value, `"' `))
	var allowed []string
	switch name {
	case "journal_mode":
		allowed = []string{"", "wal"}
	case "synchronous":
		allowed = []string{"", "2", "full", "3", "extra"}
		if f.role != roleWriter {
			allowed = append(allowed, "1", "normal")
		}
	case "locking_mode":
		allowed = []string{"", "normal"}
	default:
		return vfsutil.WrapPragma(f.File, name, value)
	}
	if !slices.Contains(allowed, v) {
		return "", fmt.Errorf("replica: PRAGMA %s=%s is not possible in a replicated database", name, value)
	}
	return "", sqlite3.NOTFOUND // SQLite handles it
}

// plainWAL is the WAL of a connection that does not write transactions.
type plainWAL struct {
	vfs.File
	node *Node
	path string
}

func (f *plainWAL) Unwrap() vfs.File { return f.File }

func (f *plainWAL) Sync(flags vfs.SyncFlag) error {
	return f.node.opts.disk.sync(f.path, func() error { return f.File.Sync(flags) })
}

// keptWAL is the largest WAL that stays in its file after a checkpoint.
const keptWAL = 8 << 20

// Truncate leaves the file as it is if SQLite would empty it after a checkpoint: all its frames are
// durable in the database, and the next frames overwrite it after a new header. A small transaction
// then costs 8.5 instead of 12 µs, because the kernel need not allocate and clear pages. A WAL that
// has become large during a long read is emptied.
func (f *plainWAL) Truncate(size int64) error {
	if n, err := f.File.Size(); size == 0 && err == nil && n <= keptWAL {
		return nil
	}
	return f.File.Truncate(size)
}

// walFile keeps the frames of a transaction in memory until a majority has them.
type walFile struct {
	vfs.File
	db   *database
	conn *conn
	shm  *os.File  // to find the end of the committed frames
	base int64     // offset of buf in the file
	salt [2]uint32 // of the WAL when it was begun
	from uint32    // the index's number of commits before the transaction
	buf  []byte    // the frames of a transaction
	last int64     // offset of the commit frame; 0 until it is written
}

func (f *walFile) Unwrap() vfs.File { return f.File }

func (f *walFile) Close() error { return errors.Join(f.shm.Close(), f.File.Close()) }

func (f *walFile) forget() { f.base, f.buf, f.last = 0, nil, 0 }

// refresh drops the frames of a transaction that was rolled back, if another one has been
// committed since or the WAL was restarted.
func (f *walFile) refresh() error {
	if f.base == 0 {
		return nil
	}
	h, err := committed(f.shm)
	if err != nil {
		return f.local(err, sqlite3.IOERR_READ)
	}
	if h.end() != f.base || h.salt != f.salt {
		f.forget()
	}
	return nil
}

func (f *walFile) ReadAt(p []byte, off int64) (int, error) {
	if f.base != 0 && off >= f.base {
		if err := f.refresh(); err != nil {
			return 0, err
		}
		if f.base != 0 && off >= f.base && off+int64(len(p)) <= f.base+int64(len(f.buf)) {
			return copy(p, f.buf[off-f.base:]), nil
		}
	}
	return f.File.ReadAt(p, off)
}

func (f *walFile) WriteAt(p []byte, off int64) (int, error) {
	if off < walHeaderSize {
		f.forget()
		n, err := f.File.WriteAt(p, off)
		return n, f.local(err, sqlite3.IOERR_WRITE)
	}
	if err := f.refresh(); err != nil {
		return 0, err
	}
	if f.base == 0 {
		h, err := committed(f.shm)
		if err != nil {
			return 0, f.local(err, sqlite3.IOERR_READ)
		}
		f.base, f.salt, f.from = h.end(), h.salt, h.change
	}
	at := off - f.base
	if at < 0 || at > int64(len(f.buf)) {
		base := f.base
		f.forget()
		return 0, f.failed(fmt.Errorf("replica: SQLite writes a frame at offset %d of the WAL of %s, and its commits end at %d", off, f.db.path, base), sqlite3.IOERR_WRITE)
	}
	if limit := f.db.node.opts.MaxTransaction; at+int64(len(p)) > int64(limit) {
		f.forget()
		return 0, f.failed(&TooLargeError{Limit: limit}, sqlite3.IOERR_WRITE)
	}
	if n := at + int64(len(p)); n > int64(len(f.buf)) {
		f.buf = slices.Grow(f.buf, int(n)-len(f.buf))[:n]
	}
	copy(f.buf[at:], p)
	if len(p) == frameHeaderSize && binary.BigEndian.Uint32(p[4:]) != 0 {
		f.last = off
	}
	return len(p), nil
}

func (f *walFile) Truncate(size int64) error {
	f.forget()
	return f.local(f.File.Truncate(size), sqlite3.IOERR_TRUNCATE)
}

func (f *walFile) Size() (int64, error) {
	n, err := f.File.Size()
	if f.base != 0 {
		n = max(n, f.base+int64(len(f.buf)))
	}
	return n, err
}

// Sync commits the transaction that is in memory: when a majority has it, its frames go
// into the file. The file itself is synced by checkpoints and snapshots.
func (f *walFile) Sync(flags vfs.SyncFlag) error {
	if f.last == 0 {
		// SQLite has begun the WAL anew.
		return f.local(f.db.node.opts.disk.sync(f.db.path+"-wal", func() error { return f.File.Sync(flags) }), sqlite3.IOERR_FSYNC)
	}
	base, buf, last := f.base, f.buf, f.last
	f.forget()
	if cap(buf) <= 1<<20 {
		defer func() { f.buf = buf[:0] }()
	}
	if f.db.node.opts.Trace {
		defer trace.StartRegion(context.Background(), "replica.commit").End()
	}
	if err := f.makeRoom(base + int64(len(buf))); err != nil {
		return f.local(err, sqlite3.IOERR_FSYNC)
	}
	err := f.db.commit(f.conn, base, f.from, buf, last, func(frames []byte) error {
		_, err := f.File.WriteAt(frames, base)
		return err
	})
	if err != nil {
		return f.failed(err, sqlite3.IOERR_FSYNC)
	}
	f.conn.committed.Store(true)
	return nil
}

// makeRoom extends the index of the WAL for frames up to an offset. SQLite enters the frames of a
// transaction after the sync. If it failed then, because the disk is full, the file would lack a
// transaction that was committed.
func (f *walFile) makeRoom(end int64) error {
	at, _, _ := place(uint32((end - walHeaderSize) / (frameHeaderSize + int64(f.db.pageSize))))
	if at == 0 {
		return nil // the index always has its first block
	}
	info, err := f.shm.Stat()
	if err != nil || info.Size() >= at+indexBlock {
		return err
	}
	_, err = f.shm.WriteAt(make([]byte, at+indexBlock-info.Size()), info.Size())
	return err
}

// local returns an error of the file on this node. The transaction was not proposed then.
func (f *walFile) local(err error, code sqlite3.ExtendedErrorCode) error {
	if err == nil {
		return nil
	}
	f.db.node.fitness.fileFailed(err)
	return f.failed(fmt.Errorf("replica: the transaction was not committed, because the WAL of %s failed on this node: %w: %w", f.db.name, code, err), code)
}

// failed records in the connection why its commit failed.
func (f *walFile) failed(err error, code sqlite3.ExtendedErrorCode) error {
	f.conn.failure.CompareAndSwap(nil, &err)
	return vfs.SystemError(err, code)
}

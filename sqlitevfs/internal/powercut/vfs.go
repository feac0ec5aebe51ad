// SPDX-License-Identifier: MIT

package powercut

import (
	"cmp"
	"path/filepath"

	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/ringside-io/ringside/internal/testing/powercut"
	"github.com/ringside-io/ringside/sqlitevfs/internal/grouplog"
)

// VFS records the calls to another VFS. It serves SQLite directly, or as the base of another VFS,
// which syncs directories with SyncDir and opens its log of commits with GroupLog.
type VFS struct {
	vfs.VFS
	// MaxRecord is the maximum size of a commit in the group log, in bytes. 0 means what a
	// segment has room for.
	MaxRecord int
	// Choose makes a commit that is alone use the log only where the WAL grows, as in use.
	Choose bool
	// Covers makes a sync of a file cover the entries of its directory, as on file systems with a journal.
	Covers bool

	r *Recorder
	p *process
}

// VFS wraps a VFS; nil means the default one.
func (r *Recorder) VFS(base vfs.VFS) *VFS {
	if base == nil {
		base = vfs.Find("os")
	}
	return &VFS{VFS: base, r: r, p: new(process)}
}

// Kill makes all later changes by this VFS, and by files that it opened, fail without an effect: the
// process was killed.
func (v *VFS) Kill() { v.p.dead.Store(true) }

// SyncDir makes the entries of a directory durable.
func (v *VFS) SyncDir(dir string) error { return recordedFS{v.r, v.p}.SyncDir(dir) }

// Ordered tells package sqlitevfs what it finds out itself of files of the default VFS: a sync of a new file covers its
// entry, and the file has no old content.
func (v *VFS) Ordered() bool { return v.Covers }

// GroupLog returns the options of the group log: it is recorded, and so small that it wraps around.
func (v *VFS) GroupLog() grouplog.Options {
	return grouplog.Options{FS: recordedFS{v.r, v.p}, SegmentSize: 16 << 10, MaxSize: 48 << 10,
		MaxRecord: cmp.Or(v.MaxRecord, 64<<10), Always: !v.Choose, Local: true}
}

// OpenFilename opens a file, recorded if it lies in the recorder's directory.
func (v *VFS) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	var file vfs.File
	var out vfs.OpenFlag
	if name.String() == "" {
		return vfsutil.WrapOpenFilename(v.VFS, name, flags)
	}
	if err := v.p.gone(); err != nil {
		return nil, flags, err
	}
	number, err := v.r.Opened(name.String(), func() (err error) {
		file, out, err = vfsutil.WrapOpenFilename(v.VFS, name, flags)
		return err
	})
	if err != nil {
		return nil, flags, err
	}
	f := &vfsFile{File: file, r: v.r, p: v.p, number: number}
	if v.Covers {
		f.dir = v.r.Dir(filepath.Dir(name.String()))
	}
	return f, out, nil
}

// Delete removes a file, and syncs its directory if syncDir is set.
func (v *VFS) Delete(name string, syncDir bool) error {
	if err := v.p.gone(); err != nil {
		return err
	}
	if err := v.r.Removed(name, func() error { return v.VFS.Delete(name, false) }); err != nil || !syncDir {
		return err
	}
	return v.r.SyncDir(filepath.Dir(name))
}

// vfsFile records the operations on a file. It ignores size hints, which only reduce fragmentation.
type vfsFile struct {
	vfs.File
	r      *Recorder
	p      *process
	number int
	dir    string // whose entries a sync covers
}

func (f *vfsFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.p.gone(); err != nil {
		return 0, err
	}
	if err := f.r.Fault("write", f.number); err != nil {
		return 0, err
	}
	n, err := f.File.WriteAt(p, off)
	f.r.Wrote(f.number, p[:n], off)
	return n, err
}

func (f *vfsFile) Truncate(size int64) error {
	if err := f.p.gone(); err != nil {
		return err
	}
	err := f.File.Truncate(size)
	if err == nil && f.number >= 0 {
		f.r.Note(powercut.Op{Kind: powercut.Truncate, File: f.number, Off: size})
	}
	return err
}

func (f *vfsFile) Sync(flags vfs.SyncFlag) error {
	err := f.r.sync(f.p, f.number, func() error { return f.File.Sync(flags) })
	if err != nil || f.dir == "" {
		return err
	}
	return f.r.Synced(-1, f.dir, func() error { return nil })
}

// SharedMemory returns that of the wrapped file, whose content does not survive anyway.
func (f *vfsFile) SharedMemory() vfs.SharedMemory { return vfsutil.WrapSharedMemory(f.File) }

// These are the file controls that affect durability.
func (f *vfsFile) HasMoved() (bool, error)       { return vfsutil.WrapHasMoved(f.File) }
func (f *vfsFile) PersistWAL() bool              { return vfsutil.WrapPersistWAL(f.File) }
func (f *vfsFile) SetPersistWAL(keep bool)       { vfsutil.WrapSetPersistWAL(f.File, keep) }
func (f *vfsFile) PowersafeOverwrite() bool      { return vfsutil.WrapPowersafeOverwrite(f.File) }
func (f *vfsFile) SetPowersafeOverwrite(on bool) { vfsutil.WrapSetPowersafeOverwrite(f.File, on) }
func (f *vfsFile) LockState() vfs.LockLevel      { return vfsutil.WrapLockState(f.File) }
func (f *vfsFile) DeviceCharacteristics() vfs.DeviceCharacteristic {
	return f.File.DeviceCharacteristics() &^ vfs.IOCAP_BATCH_ATOMIC
}

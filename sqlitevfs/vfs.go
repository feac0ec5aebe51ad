// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"errors"
	"path/filepath"
	"strings"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"
	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
	"github.com/ringside-io/ringside/sqlitevfs/internal/grouplog"
)

// ringVFS is the VFS: it opens files of the base and wraps those that belong to
// a database.
type ringVFS struct {
	vfs.VFS // the base
	name    string
	opts    Options
	dirs    dirSyncer
	dbs     databases
}

// dirSyncer makes the entries of a directory durable.
type dirSyncer interface{ SyncDir(dir string) error }

func newVFS(name string, base vfs.VFS, o Options) *ringVFS {
	v := &ringVFS{VFS: base, name: name, opts: o, dirs: disk.OS}
	if d, ok := base.(dirSyncer); ok {
		v.dirs = d
	}
	v.dbs.open = make(map[string]*database)
	known.add(v)
	return v
}

// Open opens a file by a plain name. SQLite itself calls OpenFilename.
func (v *ringVFS) Open(name string, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	if name == "" {
		return v.OpenFilename(nil, flags)
	}
	return vfsutil.WrapOpen(v.VFS, name, flags)
}

// journals are the files beside a database on which its durability rests.
const journals = vfs.OPEN_MAIN_JOURNAL | vfs.OPEN_WAL | vfs.OPEN_SUPER_JOURNAL

// OpenFilename opens a file of the base, and wraps it if it belongs to a database. Before it
// opens a database it replays the log.
func (v *ringVFS) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	opts := v.opts
	if flags&vfs.OPEN_MAIN_DB != 0 {
		var err error
		if opts, err = opts.with(name); err != nil {
			return nil, flags, vfs.SystemError(err, sqlite3.CANTOPEN) // with MISUSE the message is lost
		}
	}
	ours := flags&(vfs.OPEN_MAIN_DB|journals) != 0 && flags&vfs.OPEN_MEMORY == 0 && name.String() != ""
	if ours && flags&vfs.OPEN_MAIN_DB != 0 {
		if grouplog.Reserved(name.String()) {
			return nil, flags, vfs.SystemError(errReserved, sqlite3.CANTOPEN)
		}
		if err := v.recoverLog(name.String(), flags, opts); err != nil {
			return nil, flags, err
		}
	}
	base, out, made, err := v.open(name, flags)
	if err != nil || !ours {
		return base, out, err
	}
	if flags&vfs.OPEN_MAIN_DB != 0 && opts.Atomic4K == AtomicOn {
		if err := wholeSectors(descriptor(base)); err != nil {
			return nil, flags, vfs.SystemError(errors.Join(err, base.Close()), sqlite3.CANTOPEN)
		}
	}
	f := v.wrap(base, name, flags, opts)
	f.made = made && f.shares
	if f.owner {
		f.db.commits.configure(f.db.opts)
	} else if flags&vfs.OPEN_WAL != 0 && flags&vfs.OPEN_READONLY == 0 {
		f.frames = &frameWriter{}
		if f.main != nil {
			f.main.beside = f
		}
		if _, absent := base.(absentWAL); absent {
			f.absent = name
		} else {
			f.startLog()
		}
	}
	return f, out, nil
}

// open opens a file of the base. made reports that it has made the file, a rollback journal, and that its
// database is on a file system with which syncs are shared. Ext4 and XFS make the entry of a file that this system has
// made durable with the first sync of the file, and what was removed before. Btrfs makes only the entry durable: a WAL or
// a journal of an earlier mode could reappear, and hide or undo later commits. A WAL may be an absentWAL.
func (v *ringVFS) open(name *vfs.Filename, flags vfs.OpenFlag) (base vfs.File, out vfs.OpenFlag, made bool, err error) {
	if flags&(vfs.OPEN_MAIN_JOURNAL|vfs.OPEN_WAL) != 0 && flags&vfs.OPEN_CREATE != 0 {
		main, ok := vfsutil.UnwrapFile[*file](name.DatabaseFile())
		switch {
		case !ok:
		case flags&vfs.OPEN_WAL != 0:
			if main.exclusive() && v.missing(name.String()) {
				return absentWAL{main.File}, flags, false, nil
			}
		case main.shares && !main.db.group.leavesRemovals && main.db.entry.Load() == nil:
			base, out, err = vfsutil.WrapOpenFilename(v.VFS, name, flags|vfs.OPEN_EXCLUSIVE)
			if err == nil {
				return base, out &^ vfs.OPEN_EXCLUSIVE, true, nil
			}
		}
	}
	base, out, err = vfsutil.WrapOpenFilename(v.VFS, name, flags)
	return base, out, false, err
}

// missing reports whether a file is known not to exist.
func (v *ringVFS) missing(name string) bool {
	there, err := v.Access(name, vfs.ACCESS_EXISTS)
	return err == nil && !there
}

var errReserved = errors.New("sqlitevfs: the name is reserved for the log of commits: give the database another one")

// wrap wraps a file of the base.
func (v *ringVFS) wrap(base vfs.File, name *vfs.Filename, flags vfs.OpenFlag, opts Options) *file {
	f := &file{File: base, vfs: v, name: name.String(), fd: descriptor(base), flags: flags}
	created := flags&vfs.OPEN_CREATE != 0
	if flags&vfs.OPEN_MAIN_DB != 0 {
		f.db = v.dbs.acquire(v, f.name, f.fd, opts)
		f.owner = true
		f.prefetch = newPrefetcher(f, opts)
		size, err := base.Size()
		f.entry = created && err == nil && size == 0
	} else {
		if main, ok := vfsutil.UnwrapFile[*file](name.DatabaseFile()); ok {
			f.db, f.main = main.db, main
		}
		// It is not known whether the entry of an existing file was ever synced, unless
		// this process synced it.
		f.entry = created && !f.db.durable(f.id)
		if flags&vfs.OPEN_MAIN_JOURNAL != 0 && f.db != nil {
			f.db.walMode.Store(false)
			if created {
				f.db.journalSyncs.Store(0)
			}
		}
	}
	f.shares = f.db.shares(f.fd)
	return f
}

// Delete removes a file. It makes the removal of a journal durable when SQLite requests it,
// and when the journal was synced as often as with synchronous=FULL. The removal is the commit,
// and a power cut would otherwise undo it. With atomic writes it always makes it durable: the next
// commit may have no journal, and the old one could reappear and undo it. Delete also makes the
// removal of a WAL durable: the WAL could otherwise reappear after a power cut and hide later
// changes.
func (v *ringVFS) Delete(name string, syncDir bool) error {
	db := v.dbs.of(name)
	sync := syncDir
	if db != nil && db.opts.DirSync != Off {
		switch {
		case strings.HasSuffix(name, suffixJournal):
			full := db.journalSyncs.Swap(0) >= fullSyncs
			sync = sync || full || db.opts.Atomic4K != AtomicOff && db.synced.Load()
		case strings.HasSuffix(name, suffixWAL):
			sync = sync || db.synced.Load()
		}
	}
	if who := db.observer(); who != nil && strings.HasSuffix(name, suffixWAL) {
		who.Restarting(true)
	}
	if err := v.VFS.Delete(name, false); err != nil {
		return err
	}
	if strings.HasSuffix(name, suffixJournal) {
		defer db.changed()
		if db != nil {
			db.entry.Store(nil)
		}
	}
	if !sync {
		return nil
	}
	return v.syncDir(db, filepath.Dir(name))
}

const (
	suffixJournal = "-journal"
	suffixWAL     = "-wal"
	// fullSyncs is how many times SQLite syncs a journal in a transaction with
	// synchronous=FULL. With NORMAL, which promises less, it syncs the journal once.
	fullSyncs = 2
)

// syncDir makes the entries of a directory durable. Like SQLite's own VFS it ignores a
// directory that may not be read and a file system that cannot sync directories.
func (v *ringVFS) syncDir(db *database, dir string) error {
	err := v.dirs.SyncDir(dir)
	switch {
	case err == nil:
		db.count(func(s *counters) { s.dirSyncs.Add(1) })
		return nil
	case mayIgnore(err):
		return nil
	case db != nil:
		db.fail(err)
	}
	return vfs.SystemError(err, sqlite3.IOERR_DIR_FSYNC)
}

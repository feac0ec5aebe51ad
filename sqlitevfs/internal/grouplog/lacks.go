// SPDX-License-Identifier: MIT

package grouplog

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
)

// errLacks ends a replay that is not to write.
var errLacks = errors.New("the WAL lacks commits of the log")

// Lacks says whether the log in a directory holds commits that a WAL lacks, which
// [Recover] would write into it. It changes nothing, and works where nothing can
// be changed. A log in use has nothing that a WAL lacks. It answers
// fs.ErrNotExist where there is no log.
func Lacks(dir, wal string, o Options) (bool, error) {
	o, err := o.withDefaults()
	if err != nil {
		return false, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return false, err
	}
	if wal, err = filepath.Abs(wal); err != nil {
		return false, err
	}
	l := &Log{opts: o, dir: dir, path: filepath.Join(dir, o.Name)}
	gate, err := l.enter()
	switch {
	case err == nil:
		defer gate.Close()
		f, err := o.FS.Open(l.path, 0, 0)
		if err != nil {
			return false, err
		}
		defer f.Close()
		if err := l.lock(f); errors.Is(err, ErrInUse) {
			return false, nil
		} else if err != nil {
			return false, err
		}
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		f, err := o.FS.Open(l.path, disk.ReadOnly, 0)
		if err != nil {
			return false, err
		}
		defer f.Close()
		l.file = f
		l.opts.Salvage = true // it cannot be locked, and may be written right now
		if err := l.readHeader(); err != nil {
			return false, err
		}
	default:
		return false, err
	}
	return l.lacks(wal)
}

func (l *Log) lacks(wal string) (bool, error) {
	if l.header.clean {
		return false, nil
	}
	runs, err := l.scan()
	if err != nil {
		return false, err
	}
	t := &target{path: wal, dry: true}
	defer t.close()
	if t.file, err = l.opts.FS.Open(wal, disk.ReadOnly, 0); errors.Is(err, fs.ErrNotExist) {
		return false, nil // as a replay has it: the database was checkpointed
	} else if err != nil {
		return false, err
	}
	if t.id, err = t.file.ID(); err == nil {
		err = t.load()
	}
	if err != nil {
		return false, err
	}
	err = l.replay(runs, func(rec record) error {
		if !l.near(rec.path) || l.absolute(rec.path) != wal {
			return nil
		}
		return t.apply(rec, new(Report))
	})
	if errors.Is(err, errLacks) {
		return true, nil
	}
	return false, err
}

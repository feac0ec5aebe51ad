// SPDX-License-Identifier: MIT

package grouplog

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
)

// ErrLacks is what [Lacks] answers of a WAL that lacks commits.
var ErrLacks = errors.New("the WAL lacks commits of the log")

// Lacks finds out whether the log in a directory holds commits that a WAL lacks,
// which [Recover] would write into it: then it answers [ErrLacks]. It changes
// nothing, and works where nothing can be changed or locked. A log in use has
// nothing that a WAL lacks. It answers fs.ErrNotExist where there is no log; any
// other error means that the WAL may lack commits.
func Lacks(dir, wal string, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if wal, err = filepath.Abs(wal); err != nil {
		return err
	}
	l := &Log{opts: o, dir: dir, path: filepath.Join(dir, o.Name)}
	gate, err := l.enter()
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, ErrBusy):
		return err
	case err == nil:
		defer gate.Close()
		f, err := o.FS.Open(l.path, 0, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := l.lock(f); errors.Is(err, ErrInUse) {
			return nil
		} else if err != nil {
			return err
		}
	default: // it cannot be locked, and may be written right now
		f, err := o.FS.Open(l.path, disk.ReadOnly, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		l.file = f
		if err := l.readHeader(); err != nil {
			return err
		}
	}
	return l.lacks(wal)
}

func (l *Log) lacks(wal string) error {
	if l.header.clean {
		return nil
	}
	c, err := l.scan()
	if err != nil {
		return err
	}
	t := &target{path: wal, dry: true}
	defer t.close()
	if t.file, err = l.opts.FS.Open(wal, disk.ReadOnly, 0); errors.Is(err, fs.ErrNotExist) {
		t.file, err = nil, nil // as a replay has it: the database was checkpointed
	} else if err == nil {
		err = t.load()
	} else {
		t.file = nil
	}
	if err != nil {
		return err
	}
	rerr := l.replay(c, func(rec record) {
		if err == nil && !t.lacks && l.near(rec.path) && len(rec.frames) > 0 && rec.seq > c.synced[rec.path] && (l.absolute(rec.path) == wal || t.has(rec)) {
			err = t.apply(rec, new(Report))
		}
	})
	if err != nil || rerr != nil {
		return errors.Join(err, rerr)
	}
	if t.lacks {
		return ErrLacks
	}
	for _, d := range c.damage {
		if o := owner(l.relative(wal)); !d.known || !d.has(o) {
			return &CorruptError{l.path, d.off, "commits of this WAL may be among what is damaged"}
		}
	}
	return nil
}

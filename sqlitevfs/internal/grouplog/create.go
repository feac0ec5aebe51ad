// SPDX-License-Identifier: MIT

package grouplog

import (
	"errors"
	"io/fs"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
)

// These are the locked bytes of the log's file: one for the process that uses the log, and one for
// the process that replays it.
const (
	userByte   = 0
	replayByte = 1
)

// maxWait is how long lockReplay waits for another process. Tests shorten it.
var maxWait = 10 * time.Second

// lockReplay waits until no other process replays the log, and prevents others from replaying it
// until the returned file is closed. Without it, a second process would mistake a log that is being
// replayed for a log in use. It would then open a database that lacks commits, and overwrite their
// place.
func (l *Log) lockReplay() (replayLock disk.File, err error) {
	replayLock, err = l.opts.FS.Open(l.path, 0, 0)
	if err != nil {
		return nil, err
	}
	for start := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		ok, err := replayLock.TryLock(replayByte, 1)
		if ok {
			return replayLock, nil
		}
		if err == nil && time.Since(start) > maxWait {
			err = &fs.PathError{Op: "open", Path: l.path, Err: ErrBusy}
		}
		if err != nil {
			replayLock.Close()
			return nil, err
		}
	}
}

// create makes an empty log under a temporary name and renames it once it is durable. So a log
// under its final name is complete.
func (l *Log) create() error {
	temp := l.path + ".new"
	f, err := l.opts.FS.Open(temp, disk.Create, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := l.alone(f, temp); err != nil {
		return err
	}
	if made, err := l.opts.FS.Open(l.path, 0, 0); err == nil { // by another process
		return errors.Join(made.Close(), l.opts.FS.Remove(temp))
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := l.fill(f); err != nil {
		l.opts.FS.Remove(temp)
		return err
	}
	if err := l.opts.FS.Rename(temp, l.path); err != nil {
		return err
	}
	return l.opts.FS.SyncDir(l.dir)
}

// alone returns nil if no other process is creating the log. A process that has the lock, and finds
// the file under its name, is the only one to rename it.
func (l *Log) alone(f disk.File, temp string) error {
	inUse := &fs.PathError{Op: "create", Path: temp, Err: ErrInUse}
	if ok, err := f.TryLock(userByte, 1); err != nil {
		return err
	} else if !ok {
		return inUse
	}
	named, err := l.opts.FS.Open(temp, 0, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return inUse
	} else if err != nil {
		return err
	}
	defer named.Close()
	id, err := f.ID()
	if err != nil {
		return err
	}
	if now, err := named.ID(); err != nil {
		return err
	} else if now != id {
		return inUse
	}
	return nil
}

// fill writes an empty log into a file, which may have content of an interrupted attempt.
func (l *Log) fill(f disk.File) error {
	h := fileHeader{id: randomID(), revision: 1, generation: 1, live: 1, segment: l.opts.SegmentSize, first: l.opts.FirstSegments, clean: true}
	if err := empty(f); err != nil {
		return err
	}
	p := sys.AlignedBytes(firstBatch, block)
	for range 2 {
		h.revision++
		h.encode(p[h.slot():])
	}
	if err := writeFull(f, p, 0); err != nil {
		return err
	}
	if err := zero(f, firstBatch, firstSegments*h.first); err != nil {
		return err
	}
	return f.Sync()
}

// empty truncates the file after a crash, durably.
func empty(f disk.File) error {
	size, err := f.Size()
	if err != nil || size == 0 {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	return f.Sync()
}

// SPDX-License-Identifier: MIT

package grouplog

import (
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
)

// Report says what [Open] found in the log.
type Report struct {
	Batches int   // that were replayed
	Bytes   int64 // that they take in the log
	Records int   // commits in them

	Applied    int // commits that were written into their WAL
	Present    int // that their WAL had already
	Missing    int // whose WAL is gone: checkpointed and removed
	Foreign    int // of another file, or an earlier life of the WAL
	Superseded int // whose place in the WAL holds another, newer commit
	Invalid    int // whose frames do not follow what the WAL holds
	Elsewhere  int // of WALs in other directories, see [Options.Local]

	WALs    int   // that were synced
	Written int64 // bytes written into WALs
}

// The bytes of a database file that SQLite locks.
const (
	lockStart = 0x40000000
	lockSize  = 512
)

// recovery replays records into WALs.
type recovery struct {
	log    *Log
	report Report
	wals   map[string]*target
}

// recover makes each WAL durable with all commits that the log holds for it.
func (l *Log) recover() (Report, error) {
	if l.header.clean {
		return Report{}, nil
	}
	runs, err := l.scan()
	if err != nil {
		return Report{}, err
	}
	rec := &recovery{log: l, wals: map[string]*target{}}
	defer rec.close()
	for _, r := range runs {
		rec.report.Batches += int(r.last - r.first + 1)
		rec.report.Bytes += r.length
	}
	if err := l.replay(runs, rec.apply); err != nil {
		return rec.report, err
	}
	return rec.report, rec.sync()
}

func (r *recovery) apply(rec record) error {
	if !r.log.near(rec.path) {
		r.report.Elsewhere++
		return nil
	}
	r.report.Records++
	t, ok := r.wals[rec.path]
	if !ok {
		var err error
		if t, err = r.log.openTarget(r.log.absolute(rec.path)); err != nil {
			return err
		}
		r.wals[rec.path] = t
	}
	return t.apply(rec, &r.report)
}

// sync makes what the WALs hold durable, also what was there before: nobody
// knows whether the disk has it.
func (r *recovery) sync() error {
	dirs := map[string]bool{}
	for _, path := range slices.Sorted(maps.Keys(r.wals)) {
		t := r.wals[path]
		if t.file == nil || !t.known {
			continue
		}
		if err := t.file.Sync(); err != nil {
			return err
		}
		r.report.WALs++
		dirs[filepath.Dir(t.path)] = true
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		if err := r.log.opts.FS.SyncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

func (r *recovery) close() {
	for _, t := range r.wals {
		t.close()
	}
}

// span is where a commit lies in a WAL.
type span struct{ start, end int64 }

// target is a WAL that records are replayed into.
type target struct {
	path   string
	file   disk.File // nil: missing
	db     disk.File // locked, nil when somebody uses the database
	dry    bool      // nothing may be written
	id     disk.ID
	header Header
	valid  bool  // it has a header
	known  bool  // a record of this life of the WAL was seen
	end    int64 // behind the last commit
	sum    checksum
	// spans are the newest commits of the WAL that are known from the log, one
	// behind the other.
	spans []span
	buf   []byte
}

// openTarget opens a WAL and finds its last commit. The database is locked
// against SQLite for the time of the recovery if nobody uses it.
func (l *Log) openTarget(path string) (*target, error) {
	t := &target{path: path}
	db, ok := database(path)
	if !ok {
		return t, nil
	}
	lock, err := l.opts.FS.Open(db, 0, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	} else if err != nil {
		return nil, err
	}
	t.db = lock
	if ok, err := lock.TryLock(lockStart, lockSize); err != nil {
		t.close()
		return nil, err
	} else if !ok {
		t.db.Close()
		t.db = nil
	}
	f, err := l.opts.FS.Open(path, 0, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	} else if err != nil {
		t.close()
		return nil, err
	}
	t.file = f
	if t.id, err = f.ID(); err == nil {
		err = t.load()
	}
	if err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func (t *target) close() {
	if t.file != nil {
		t.file.Close()
	}
	if t.db != nil {
		t.db.Close()
	}
}

// SPDX-License-Identifier: MIT

package grouplog

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
)

// Summary describes a log and the effect of a replay.
type Summary struct {
	Path     string
	Size     int64
	Segments int
	Clean    bool // it was closed and is empty
	InUse    bool // another process has it open, so it may change while it is read
	Report   Report
	WALs     []WALSummary // in the order of their paths
}

// WALSummary describes the part of a log for one WAL.
type WALSummary struct {
	Path    string
	Commits int
	Bytes   int64 // of their frames
	Report  Report
}

// Inspect reads the log in a directory and compares it with the WALs. It changes nothing, and only
// needs permission to read the files. It returns fs.ErrNotExist if there is no log.
func Inspect(dir string, o Options) (Summary, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Summary{}, err
	}
	if dir, err = directory(dir); err != nil {
		return Summary{}, err
	}
	l := &Log{opts: o, dir: dir, path: filepath.Join(dir, o.Name)}
	s := Summary{Path: l.path}
	if f, err := o.FS.Open(l.path, 0, 0); err == nil {
		s.InUse = inUse(f)
		f.Close()
	}
	if l.file, err = o.FS.Open(l.path, disk.ReadOnly, 0); err != nil {
		return s, err
	}
	defer l.file.Close()
	if s.Size, err = l.file.Size(); err != nil {
		return s, err
	}
	if err := l.readHeader(); err != nil {
		return s, err
	}
	s.Segments, s.Clean = l.total, l.header.clean
	if s.Clean {
		return s, nil
	}
	c, err := l.scan()
	if err != nil {
		return s, err
	}
	r := l.newRecovery(c)
	r.dry = true
	defer r.close()
	each := map[string]*WALSummary{}
	err = l.replay(c, func(rec record) {
		before := r.report
		r.apply(rec)
		if len(rec.frames) == 0 {
			return
		}
		w := each[rec.path]
		if w == nil {
			w = &WALSummary{Path: l.absolute(rec.path)}
			each[rec.path] = w
		}
		w.Commits++
		w.Bytes += int64(len(rec.frames))
		w.Report.add(&before, &r.report)
	})
	if err != nil {
		return s, err
	}
	for _, name := range slices.Sorted(maps.Keys(r.wals)) {
		before := r.report
		r.wals[name].countAbsent(&r.report)
		if w := each[name]; w != nil {
			w.Report.add(&before, &r.report)
		}
	}
	r.damaged()
	s.Report = r.report
	for _, w := range each {
		s.WALs = append(s.WALs, *w)
	}
	slices.SortFunc(s.WALs, func(a, b WALSummary) int { return strings.Compare(a.Path, b.Path) })
	return s, nil
}

// inUse reports whether another process uses or replays a log. It locks both bytes, as a replay does:
// with the byte of the user alone, a replay that begins meanwhile would take the log for one in use, which
// has nothing to replay.
func inUse(f disk.File) bool {
	for _, b := range []int64{replayByte, userByte} {
		if ok, err := f.TryLock(b, 1); !ok {
			return err == nil
		}
	}
	return false
}

// add adds the difference between two reports.
func (r *Report) add(before, after *Report) {
	r.Applied += after.Applied - before.Applied
	r.Present += after.Present - before.Present
	r.Old += after.Old - before.Old
	r.Missing += after.Missing - before.Missing
	r.Foreign += after.Foreign - before.Foreign
	r.Replaced += after.Replaced - before.Replaced
	r.Superseded += after.Superseded - before.Superseded
	r.Invalid += after.Invalid - before.Invalid
	r.Elsewhere += after.Elsewhere - before.Elsewhere
}

// Salvage replays the readable part of a damaged log. Then it renames the log, and returns the new
// name. The databases are usable afterwards, without the commits that the report lists as lost. The
// log keeps its name while there are WALs that could not be completed for another reason.
func Salvage(dir string, o Options) (Report, string, error) {
	o.Salvage = true
	report, err := Recover(dir, o)
	if err != nil {
		return report, "", err
	}
	if err := report.Pending(); err != nil {
		return report, "", err
	}
	o, err = o.withDefaults()
	if err != nil {
		return report, "", err
	}
	path := filepath.Join(dir, o.Name)
	for i := 1; ; i++ {
		aside := fmt.Sprintf("%s.salvaged-%d", path, i)
		if _, err := o.FS.Lookup(aside); err == nil {
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return report, "", err
		}
		if err := o.FS.Rename(path, aside); err != nil {
			return report, "", err
		}
		return report, aside, o.FS.SyncDir(dir)
	}
}

// guessHeader makes a header for a log without a valid one, for a salvage. Its generation is the
// newest one of a batch.
func (l *Log) guessHeader(size int64) error {
	segment := min(roundUp(max(size-firstBatch, minSegment), block), maxSegment)
	p := sys.AlignedBytes(int(segment), block)
	l.header = fileHeader{segment: segment}
	if err := l.readSegment(0, p); err != nil {
		return err
	}
	for at := int64(0); at < segment; at += block {
		if h, ok := decodeBatchHeader(p[at:]); ok && h.off == firstBatch+at && h.generation > l.header.generation {
			l.header.id, l.header.generation = h.id, h.generation
		}
	}
	if l.header.generation == 0 {
		return &CorruptError{l.path, 0, "no valid header, and no batch"}
	}
	l.total = 1
	return nil
}

// ErrLacks is returned by [Lacks] for a WAL that lacks commits.
var ErrLacks = errors.New("the WAL lacks commits of the log")

// Lacks returns [ErrLacks] if the log in a directory has commits that a WAL lacks, and that
// [Recover] would write into it. It changes nothing, and works on read-only file systems and
// without locks. A WAL does not lack commits of a log that is in use. It returns fs.ErrNotExist if
// there is no log. Any other error means that the WAL may lack commits.
func Lacks(dir, wal string, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	if dir, err = directory(dir); err != nil {
		return err
	}
	if wal, err = Canonical(wal); err != nil {
		return err
	}
	l := &Log{opts: o, dir: dir, path: filepath.Join(dir, o.Name)}
	replayLock, err := l.lockReplay()
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, ErrBusy):
		return err
	case err == nil:
		defer replayLock.Close()
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
	default: // it cannot be locked, and may be written at the moment
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

// lacks makes a replay without writing, and returns ErrLacks if the WAL lacks commits of the log.
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
	if db, ok := database(wal); ok {
		if t.content, err = l.opts.FS.Open(db, disk.ReadOnly, 0); err != nil {
			t.content = nil
		}
	}
	if t.file, err = l.opts.FS.Open(wal, disk.ReadOnly, 0); errors.Is(err, fs.ErrNotExist) {
		t.file, err = nil, nil // treated as in a replay: the database was checkpointed
	} else if err == nil {
		if t.content != nil {
			t.evidence = l.examine(t.content, t.file)
		}
		err = t.load()
	} else {
		t.file = nil
	}
	if err != nil {
		return err
	}
	rerr := l.replay(c, func(rec record) {
		if err == nil && !t.lacks && l.serves(rec.path) && len(rec.frames) > 0 && rec.seq > c.synced[rec.path] && (l.absolute(rec.path) == wal || t.has(rec)) {
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
		for _, o := range l.owners(wal) {
			if !d.known || !d.allValid(o) {
				return &CorruptError{l.path, d.off, "commits of this WAL may be among what is damaged"}
			}
		}
	}
	return nil
}

// SPDX-License-Identifier: MIT

package grouplog

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/maphash"
	"io/fs"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
)

// A database and its WAL that were restored from a copy may have the salts of the log's records, and frames that
// the records continue: they look as after a power cut. What differs is the identity of the files. A record
// has the marks of the WAL and the database for which it was written, and the log has its own. If the mark
// of the log is not its own, the log was copied too, and marks say nothing: the files are then taken for a copy of a
// directory, made at one time.

// mark returns a number for a file that another file hardly has. It is 0 if the file system does not record times of
// birth.
func mark(id disk.ID) uint64 {
	if id.Born == 0 || id.Inode == 0 {
		return 0
	}
	return hash(id.Inode, uint64(id.Born))
}

func hash(a, b uint64) uint64 {
	const golden = 0x9e3779b97f4a7c15
	h := a*golden ^ b
	h ^= h >> 29
	h *= golden
	return max(1, h^h>>32)
}

// origin says where a log was written: in which file, and since which mount of its file system.
type origin struct{ mark, mount uint64 }

// originAt is where the origin is in the blocks of the file's header.
const (
	originAt   = fileHeaderSize
	originSize = 20
)

func (o origin) encode(p []byte) {
	le.PutUint64(p[originAt:], o.mark)
	le.PutUint64(p[originAt+8:], o.mount)
	le.PutUint32(p[originAt+16:], crc32.Checksum(p[originAt:originAt+16], castagnoli))
}

func decodeOrigin(p []byte) origin {
	p = p[originAt : originAt+originSize]
	if le.Uint32(p[16:]) != crc32.Checksum(p[:16], castagnoli) {
		return origin{} // of an earlier version
	}
	return origin{le.Uint64(p), le.Uint64(p[8:])}
}

// originOf returns the origin of a file. What is not known is 0.
func originOf(f disk.File) (o origin) {
	if id, err := f.ID(); err == nil {
		o.mark = mark(id)
	}
	if _, mount, err := f.Times(); err == nil {
		o.mount = mount
	}
	return o
}

// evidence is what the files of a database say about the records of a log.
type evidence struct {
	known   bool // the log is the file in which its records were written
	db, wal uint64
	// These files were written after the log, as restored copies are.
	dbLater, walLater bool
}

// crashSlack is how much later than the log a database may be written if the machine may have crashed in between: a
// checkpoint can go on while nothing is committed. walSlack is for a kill between the write of a WAL and of the log.
const (
	crashSlack = time.Minute
	walSlack   = time.Second
)

// examine reads the evidence about a database. The file is that of the log.
func (l *Log) examine(db disk.File, wal disk.File) (e evidence) {
	now := originOf(l.file)
	if l.origin.mark == 0 || l.origin.mark != now.mark {
		return e
	}
	e.known = true
	logged, _, err := l.file.Times()
	if l.origin.mount == 0 || l.origin.mount != now.mount {
		logged = logged.Add(crashSlack)
	}
	e.db, e.dbLater = comparedTo(db, logged)
	if wal != nil {
		e.wal, e.walLater = comparedTo(wal, logged.Add(walSlack))
	}
	e.dbLater, e.walLater = e.dbLater && err == nil, e.walLater && err == nil
	return e
}

// comparedTo returns the mark of a file, and reports whether it was written after a time.
func comparedTo(f disk.File, t time.Time) (m uint64, later bool) {
	if id, err := f.ID(); err == nil {
		m = mark(id)
	}
	written, _, err := f.Times()
	return m, err == nil && written.After(t)
}

// verdict is what the evidence says about a record that a WAL may lack.
type verdict int

const (
	genuine    verdict = iota // the files are those of the record, or nothing is known
	restored                  // database and WAL were replaced by a copy
	mismatched                // the database was replaced, and the WAL was not
)

func (e evidence) of(rec record) verdict {
	switch {
	case !e.known || rec.db == 0 || e.db == 0 || e.db == rec.db && !e.dbLater:
		return genuine
	case e.db != rec.db && e.wal == rec.wal && e.wal != 0 && !e.walLater:
		return mismatched
	}
	return restored
}

const whyRestored = "the database and its WAL were replaced by a copy, which lacks them: the log is kept aside"

// ErrMismatched means that a database was replaced while its WAL was left.
var ErrMismatched = errors.New("the database was replaced, and its WAL belongs to the former one: remove the WAL and the file that ends with -shm to use the new database, or put the former one back")

// absence are the records of a WAL that is gone or was made anew. Their commits may be in the database.
type absence struct {
	records []absentRecord
	commits int
	why     string
	db      disk.File // nil: there is none
}

type absentRecord struct {
	header Header
	end    int64
	pages  map[uint32]uint64 // hashes of their contents
	size   uint32            // of the database, in pages
}

var pageSeed = maphash.MakeSeed()

// add notes a record, and forgets those that it replaces.
func (a *absence) add(rec record) {
	a.commits++
	for n := len(a.records) - 1; n >= 0 && a.records[n].header.same(rec.header) && a.records[n].end > rec.off; n-- {
		a.records = a.records[:n]
	}
	r := absentRecord{header: rec.header, end: rec.end(), pages: map[uint32]uint64{}}
	for p, frame := rec.frames, int(rec.header.frame()); len(p) >= frame; p = p[frame:] {
		r.pages[be.Uint32(p)] = maphash.Bytes(pageSeed, p[frameHeaderSize:frame])
		r.size = cmp.Or(be.Uint32(p[4:]), r.size)
	}
	a.records = append(a.records, r)
}

// inDatabase reports whether the database has all pages as the newest records left them.
func (a *absence) inDatabase() bool {
	if a.db == nil || len(a.records) == 0 {
		return false
	}
	last := a.records[len(a.records)-1]
	pages := map[uint32]uint64{}
	for _, r := range a.records {
		for n, sum := range r.pages {
			pages[n] = sum
		}
	}
	p := make([]byte, last.header.PageSize)
	for n, sum := range pages {
		if n > last.size {
			continue
		}
		if readFull(a.db, p, int64(n-1)*int64(len(p))) != nil || maphash.Bytes(pageSeed, p) != sum {
			return false
		}
	}
	return true
}

// countAbsent counts the records of a WAL that is gone: their commits are in the database, if a program without this
// package has checkpointed the WAL, or they are missing.
func (t *target) countAbsent(report *Report) {
	if t.absence == nil {
		return
	}
	n := t.absence.commits
	switch {
	case t.absence.inDatabase():
		report.Old += n
		return
	case t.absence.why == whyForeign:
		report.Foreign += n
	default:
		report.Missing += n
	}
	for range n {
		report.skip(t.path, t.absence.why)
	}
}

// keepAside copies the log under another name, because it has commits that are not replayed and that may be wanted. It
// returns the name.
func (l *Log) keepAside() (string, error) {
	size, err := l.file.Size()
	if err != nil {
		return "", err
	}
	for i := 1; ; i++ {
		name := fmt.Sprintf("%s.kept-%d", l.path, i)
		f, err := l.opts.FS.Open(name, disk.Create|disk.Exclusive, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		} else if err != nil {
			return "", err
		}
		err = cmp.Or(copyFile(f, l.file, size), f.Sync(), f.Close(), l.opts.FS.SyncDir(l.dir))
		return name, err
	}
}

func copyFile(to, from disk.File, size int64) error {
	for off := int64(0); off < size; off += zeroPiece {
		p := sys.AlignedBytes(int(min(zeroPiece, roundUp(size-off, block))), block)
		n, err := from.ReadAt(p, off)
		if int64(n) < min(int64(len(p)), size-off) {
			return cmp.Or(err, fs.ErrInvalid)
		}
		if err := writeFull(to, p[:n], off); err != nil {
			return err
		}
	}
	return nil
}

// SPDX-License-Identifier: MIT

package grouplog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
)

// loadPiece is the size of a read of a WAL.
const loadPiece = 1 << 20

// load reads the WAL up to its last commit, as SQLite does when it recovers.
func (t *target) load() error {
	t.valid, t.spans = false, nil
	size, err := t.file.Size()
	if err != nil {
		return err
	}
	t.size = size
	p := make([]byte, walHeaderSize)
	if n, err := t.file.ReadAt(p, 0); n < len(p) {
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		return nil
	}
	h, err := ParseHeader(p)
	if err != nil {
		return nil // SQLite ignores such a WAL too
	}
	t.header, t.valid = h, true
	t.end, t.sum = walHeaderSize, h.sum
	frame := int(h.frame())
	p = make([]byte, max(1, loadPiece/frame)*frame)
	sum, off := t.sum, t.end
	for {
		n, err := t.file.ReadAt(p, off)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		for q := p[:n]; len(q) >= frame; q = q[frame:] {
			var ok bool
			if sum, ok = h.chain(sum, q[:frame]); !ok {
				return nil
			}
			off += int64(frame)
			if commits(q) {
				t.end, t.sum = off, sum
			}
		}
		if n < len(p) {
			return nil
		}
	}
}

// has reports whether a record belongs to the current life of the WAL.
func (t *target) has(rec record) bool { return t.file != nil && t.valid && rec.header.same(t.header) }

// followed reports whether SQLite has restarted the WAL since the record was written. SQLite
// restarts it when all of it is in the database: it increments the first salt, or truncates the
// WAL. (The checkpoint number is not usable, because each connection counts for itself.)
func (t *target) followed(rec record) bool {
	if t.file != nil && t.size == 0 {
		return true
	}
	lives := be.Uint32(t.header.Salt[:]) - be.Uint32(rec.header.Salt[:])
	return t.file != nil && t.valid && lives > 0 && lives <= maxLives
}

// maxLives is the maximum number of restarts after which a WAL is recognised. With more, two
// unrelated WALs would be too likely to match.
const maxLives = 1 << 16

// apply writes one commit into the WAL if it belongs there.
func (t *target) apply(rec record, report *Report) error {
	switch {
	case t.file == nil:
		t.absent(rec, whyMissing)
		return nil
	case t.followed(rec):
		report.Old++
		return nil
	case !t.has(rec):
		t.absent(rec, whyForeign)
		return nil
	}
	switch v := t.evidence.of(rec); {
	case v == mismatched:
		return ErrMismatched
	case v == restored && rec.end() > t.end:
		report.Replaced++
		report.skip(t.path, whyRestored)
		return nil
	}
	t.records++
	t.known = true
	before, ok, err := t.before(rec.off)
	if err != nil {
		return err
	}
	if !ok {
		report.Invalid++
		report.skip(t.path, whyInvalid)
		return nil
	}
	same := t.lacks && rec.off == t.end
	if !t.lacks {
		if same, err = t.agrees(rec); err != nil {
			return err
		}
	}
	if same && rec.end() <= t.end {
		report.Present++
		t.note(rec)
		return t.renew(rec)
	}
	sum, ok := t.verify(rec, before)
	if !ok {
		report.Invalid++
		report.skip(t.path, whyInvalid)
		return nil
	}
	if !same && !t.replaceable(rec.off) {
		report.Superseded++
		report.skip(t.path, "the WAL holds another commit in their place: a program that does not know the log has written first")
		return nil
	}
	if !t.locked && !t.dry && !t.again {
		// The database is in use: SQLite may have restarted the WAL while it was read.
		t.again = true
		if err := t.load(); err != nil {
			return err
		}
		t.records--
		return t.apply(rec, report)
	}
	return t.write(rec, sum, report)
}

const (
	whyMissing = "the WAL, or its database, is not there"
	whyForeign = "the WAL is another one: its salts differ"
)

// absent notes a record whose WAL is not there.
func (t *target) absent(rec record, why string) {
	if t.absence == nil {
		t.absence = &absence{why: why, db: t.content}
	}
	t.absence.add(rec)
}

const whyInvalid = "they do not follow what the WAL holds"

// before returns the checksum of the frames before an offset, which is not after the last commit.
func (t *target) before(off int64) (checksum, bool, error) {
	switch {
	case !t.header.aligned(off) || off > t.end:
		return checksum{}, false, nil
	case off == t.end:
		return t.sum, true, nil
	case t.lacks:
		return checksum{}, false, nil
	case off == walHeaderSize:
		return t.header.sum, true, nil
	}
	p := make([]byte, frameHeaderSize)
	if err := readFull(t.file, p, off-t.header.frame()); err != nil {
		return checksum{}, false, err
	}
	return sumOf(p), true, nil
}

// verify checks the frames of a record against the checksum before them: salts, chain, and a commit
// at the end.
func (t *target) verify(rec record, sum checksum) (checksum, bool) {
	frame := int(t.header.frame())
	p := rec.frames
	if len(p) == 0 || len(p)%frame != 0 {
		return sum, false
	}
	for ok := true; len(p) > 0; p = p[frame:] {
		if sum, ok = t.header.chain(sum, p[:frame]); !ok {
			return sum, false
		}
	}
	return sum, commits(rec.frames[len(rec.frames)-frame:])
}

// agrees reports whether the WAL and the record have the same frames, up to the end of the WAL.
func (t *target) agrees(rec record) (bool, error) {
	n := int(min(int64(len(rec.frames)), t.end-rec.off))
	if cap(t.buf) < n {
		t.buf = make([]byte, n)
	}
	p := t.buf[:n]
	if err := readFull(t.file, p, rec.off); err != nil {
		return false, err
	}
	return bytes.Equal(p, rec.frames[:n]), nil
}

// note records that the commit at this offset is from the log.
func (t *target) note(rec record) {
	for len(t.spans) > 0 && t.spans[len(t.spans)-1].end > rec.off {
		t.spans = t.spans[:len(t.spans)-1]
	}
	t.spans = append(t.spans, span{rec.off, rec.end()})
}

// replaceable reports whether all commits of the WAL from an offset on are from earlier records of
// the log. SQLite discarded those if a later record begins there. Any other commit was written by
// another program after the crash, and is newer.
func (t *target) replaceable(off int64) bool {
	end := t.end
	for _, s := range slices.Backward(t.spans) {
		if s.end != end {
			return false
		}
		if s.start == off {
			return true
		}
		end = s.start
	}
	return false
}

// renew writes a commit that the WAL has. If a write to the disk failed, the page cache has the commit and
// the disk does not. The kernel reports that once, and a sync then writes nothing. Where the database is in
// use SQLite may overwrite the commit meanwhile, so renew does nothing.
func (t *target) renew(rec record) error {
	if !t.locked || t.dry {
		return nil
	}
	return writeFull(t.file, rec.frames, rec.off)
}

// write writes a commit at the end of the WAL.
func (t *target) write(rec record, sum checksum, report *Report) error {
	if !t.locked && !t.dry {
		return &fs.PathError{Op: "recover", Path: t.path, Err: fmt.Errorf("%w: its WAL lacks acknowledged commits", ErrBusy)}
	}
	if t.lacks = t.dry; !t.dry {
		if err := writeFull(t.file, rec.frames, rec.off); err != nil {
			return err
		}
	}
	report.Applied++
	report.Written += int64(len(rec.frames))
	t.end, t.sum = rec.end(), sum
	t.note(rec)
	return nil
}

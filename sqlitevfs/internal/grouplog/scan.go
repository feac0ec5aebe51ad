// SPDX-License-Identifier: MIT

package grouplog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/ringside-io/ringside/internal/sys"
)

// A run is what a segment holds: batches whose numbers follow each other, from
// its start.
type run struct {
	segment     int
	first, last uint64
	live        uint64 // of the last batch
	length      int64  // of the run, in bytes
}

// scan finds the batches that have to be replayed, oldest first. Damage to what
// was acknowledged is a *CorruptError.
func (l *Log) scan() ([]run, error) {
	var runs []run
	var newest run
	var strays []batchHeader // behind the ends of runs
	p := sys.AlignedBytes(int(l.header.segment), block)
	for i := range l.total {
		if err := l.readSegment(i, p); err != nil {
			return nil, err
		}
		r, beyond, err := l.scanSegment(i, p)
		if err != nil {
			return nil, err
		}
		strays = append(strays, beyond...)
		if r.first == 0 {
			continue
		}
		runs = append(runs, r)
		if r.last > newest.last {
			newest = r
		}
	}
	newest.live = max(newest.live, l.header.live)
	slices.SortFunc(runs, func(a, b run) int { return cmp.Compare(a.first, b.first) })
	runs = slices.DeleteFunc(runs, func(r run) bool { return r.last < newest.live })
	if l.opts.Salvage {
		return runs, nil
	}
	if err := l.torn(strays, newest); err != nil {
		return nil, err
	}
	return runs, l.whole(runs, newest)
}

// maxTorn is how many headers behind the newest batch are looked into: a crash
// leaves one at most.
const maxTorn = 16

// torn checks that what has a higher number than the newest batch was never
// acknowledged: an interrupted write leaves a header and not the rest.
func (l *Log) torn(strays []batchHeader, newest run) error {
	strays = slices.DeleteFunc(strays, func(h batchHeader) bool { return h.seq <= newest.last })
	for i, h := range strays {
		p := sys.AlignedBytes(int(h.size()), block)
		if err := readFull(l.file, p, h.off); errors.Is(err, io.ErrUnexpectedEOF) {
			continue
		} else if err != nil {
			return err
		}
		if _, whole := decodeBatch(p, h.off, nil); whole || i == maxTorn {
			return &CorruptError{l.path, h.off, fmt.Sprintf("batch %d is there and %d is not", h.seq, newest.last+1)}
		}
	}
	return nil
}

// whole checks that no batch is missing that was acknowledged: those from the
// first that is live up to the newest.
func (l *Log) whole(runs []run, newest run) error {
	want := newest.live
	for _, r := range runs {
		if r.first != want {
			return &CorruptError{l.path, l.segmentOffset(r.segment), fmt.Sprintf("begins with batch %d, not %d", r.first, want)}
		}
		want = r.last + 1
	}
	return nil
}

func (l *Log) segmentOffset(i int) int64 { return firstBatch + int64(i)*l.header.segment }

// readSegment reads a segment. What is beyond the end of the file is zeros.
func (l *Log) readSegment(i int, p []byte) error {
	n, err := l.file.ReadAt(p, l.segmentOffset(i))
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	clear(p[n:])
	return nil
}

// scanSegment finds the run of a segment, and the headers of the same generation
// behind it that have a higher number.
func (l *Log) scanSegment(i int, p []byte) (r run, beyond []batchHeader, err error) {
	r.segment = i
	base := l.segmentOffset(i)
	for r.length < int64(len(p)) {
		h, ok := decodeBatch(p[r.length:], base+r.length, nil)
		if !ok || !l.ours(h) || r.first != 0 && h.seq != r.last+1 {
			break
		}
		if r.first == 0 {
			r.first = h.seq
		}
		r.last, r.live = h.seq, h.live
		r.length += h.size()
	}
	for at := r.length; at < int64(len(p)); at += block {
		h, ok := decodeBatchHeader(p[at:])
		if !ok || h.id != l.header.id || h.off != base+at {
			continue
		}
		if h.generation > l.header.generation && !l.opts.Salvage {
			return r, nil, &CorruptError{l.path, h.off, fmt.Sprintf("a batch of generation %d, and the header says %d", h.generation, l.header.generation)}
		}
		if l.ours(h) && h.seq > r.last {
			beyond = append(beyond, h)
		}
	}
	return r, beyond, nil
}

func (l *Log) ours(h batchHeader) bool {
	return h.id == l.header.id && h.generation == l.header.generation
}

// replay calls apply with each record of the runs, in the order of the commits.
func (l *Log) replay(runs []run, apply func(record) error) error {
	p := sys.AlignedBytes(int(l.header.segment), block)
	var records []record
	for _, r := range runs {
		if err := l.readSegment(r.segment, p); err != nil {
			return err
		}
		base := l.segmentOffset(r.segment)
		for at := int64(0); at < r.length; {
			records = records[:0]
			h, ok := decodeBatch(p[at:], base+at, func(rec record) { records = append(records, rec) })
			if !ok {
				return &CorruptError{l.path, base + at, "changed while it was read"}
			}
			for _, rec := range records {
				if err := apply(rec); err != nil {
					return err
				}
			}
			at += h.size()
		}
	}
	return nil
}

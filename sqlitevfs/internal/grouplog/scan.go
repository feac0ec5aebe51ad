// SPDX-License-Identifier: MIT

package grouplog

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path"
	"slices"

	"github.com/ringside-io/ringside/internal/sys"
)

// place is the location of a batch that has to be replayed.
type place struct {
	batchHeader
	broken bool // some of its records are not valid
}

// lost describes acknowledged batches that are missing or incomplete.
type lost struct {
	off         int64  // offset at which it was found
	first, last uint64 // the batches
	known       bool   // owners are the WALs with records in the batches
	owners      []uint32
	valid       []uint32 // owners whose records in it are valid
}

// allValid reports whether all records of an owner are valid.
func (d *lost) allValid(owner uint32) bool {
	n := 0
	for _, o := range d.owners {
		if o == owner {
			n++
		}
	}
	for _, o := range d.valid {
		if o == owner {
			n--
		}
	}
	return n <= 0
}

// contents is the content of a log.
type contents struct {
	batches []place // oldest first
	damage  []lost
	torn    bool              // the newest batch is incomplete, and was never acknowledged
	synced  map[string]uint64 // by WAL: records of batches up to this one are durable in the WAL
}

// maxBroken is the maximum number of examined batches with a valid header but without valid
// records. A crash leaves at most one.
const maxBroken = 64

// scan finds the batches to replay. Acknowledged batches that cannot be read are damage. An error
// means that the log's content is unknown.
func (l *Log) scan() (*contents, error) {
	c := &contents{synced: map[string]uint64{}}
	var all, broken []place
	p := sys.AlignedBytes(int(l.header.segment), block)
	for i := range l.total {
		p := p[:l.segmentSize(i)]
		if err := l.readSegment(i, p); err != nil {
			return nil, err
		}
		var err error
		if all, broken, err = l.scanSegment(i, p, c, all, broken); err != nil {
			return nil, err
		}
	}
	live := l.header.live
	for _, b := range all {
		live = max(live, b.live)
	}
	old := func(b place) bool { return b.seq < live }
	all, broken = slices.DeleteFunc(all, old), slices.DeleteFunc(broken, old)
	// The header of a batch is written after all batches before it were acknowledged.
	last := uint64(0)
	for _, b := range all {
		last = max(last, b.seq)
	}
	for _, b := range broken {
		c.torn = c.torn || b.seq > last
		last = max(last, b.seq-1)
	}
	for _, b := range broken {
		if b.seq <= last {
			all = append(all, b)
		}
	}
	slices.SortFunc(all, func(a, b place) int { return cmp.Compare(a.seq, b.seq) })
	c.batches = slices.CompactFunc(all, func(a, b place) bool { return a.seq == b.seq })
	c.findDamage(live, last)
	return c, nil
}

// findDamage looks for missing or broken batches between the oldest needed and the newest
// acknowledged one. Each batch lists the owners of the records in the one before it.
func (c *contents) findDamage(live, last uint64) {
	want := live
	for i, b := range c.batches {
		if b.seq > want {
			d := lost{off: b.off, first: want, last: b.seq - 1}
			if d.first == d.last && !b.broken && b.prev != nil {
				d.known, d.owners = true, b.prev
			}
			c.damage = append(c.damage, d)
		}
		if b.broken {
			d := lost{off: b.off, first: b.seq, last: b.seq}
			if i+1 < len(c.batches) {
				if next := c.batches[i+1]; next.seq == b.seq+1 && !next.broken && next.prev != nil {
					d.known, d.owners = true, next.prev
				}
			}
			c.damage = append(c.damage, d)
		}
		want = b.seq + 1
	}
	if want <= last {
		c.damage = append(c.damage, lost{off: firstBatch, first: want, last: last})
	}
}

// owner returns the hash by which a batch identifies a WAL with a record in the batch before it.
func owner(path string) uint32 { return crc32.Checksum([]byte(path), castagnoli) }

func (l *Log) segmentOffset(i int) int64 {
	if small := l.header.small(); i < firstSegments {
		return firstBatch + int64(i)*small
	} else {
		return firstBatch + firstSegments*small + int64(i-firstSegments)*l.header.segment
	}
}

func (l *Log) segmentSize(i int) int64 {
	if i < firstSegments {
		return l.header.small()
	}
	return l.header.segment
}

// segmentsIn returns the number of whole segments in a file of a size.
func (l *Log) segmentsIn(size int64) int {
	small := l.header.small()
	n := max(0, size-firstBatch) / small
	if n < firstSegments {
		return int(n)
	}
	return firstSegments + int((size-firstBatch-firstSegments*small)/l.header.segment)
}

// readSegment reads a segment. Bytes beyond the end of the file are zeros.
func (l *Log) readSegment(i int, p []byte) error {
	n, err := l.file.ReadAt(p, l.segmentOffset(i))
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	clear(p[n:])
	return nil
}

// scanSegment finds the batches of this generation in a segment.
func (l *Log) scanSegment(i int, p []byte, c *contents, all, broken []place) ([]place, []place, error) {
	base := l.segmentOffset(i)
	var records []record
	for at := int64(0); at < int64(len(p)); {
		h, ok := decodeBatchHeader(p[at:])
		if !ok || h.id != l.header.id || h.off != base+at || h.generation < l.header.generation {
			at += block
			continue
		}
		if h.generation > l.header.generation {
			if l.opts.Salvage {
				at += block
				continue
			}
			return nil, nil, &CorruptError{l.path, h.off, fmt.Sprintf("a batch of generation %d, and the header says %d", h.generation, l.header.generation)}
		}
		records = records[:0]
		h, ok = decodeBatch(p[at:], base+at, func(r record) { records = append(records, r) })
		if !ok {
			if broken = append(broken, place{h, true}); len(broken) > maxBroken && !l.opts.Salvage {
				return nil, nil, &CorruptError{l.path, h.off, fmt.Sprintf("%d batches are not whole", len(broken))}
			} else if len(broken) > maxBroken {
				broken = broken[:maxBroken]
			}
			at += block
			continue
		}
		all = append(all, place{h, false})
		for _, r := range records {
			if r.synced > c.synced[r.path] {
				c.synced[r.path] = r.synced
			}
		}
		at += h.size()
	}
	return all, broken, nil
}

// replay calls apply with each valid record of the batches, in the order of the
// commits.
func (l *Log) replay(c *contents, apply func(record)) error {
	var p []byte
	for _, b := range c.batches {
		if int64(len(p)) < b.size() {
			p = sys.AlignedBytes(int(max(b.size(), min(maxBatch, l.header.segment))), block)
		}
		q := p[:b.size()]
		if n, err := l.file.ReadAt(q, b.off); n < len(q) && (!b.broken || !errors.Is(err, io.EOF)) {
			return cmp.Or(err, io.ErrUnexpectedEOF)
		} else {
			clear(q[n:])
		}
		var records []record
		_, ok := decodeBatch(q, b.off, func(r record) { records = append(records, r) })
		if ok == b.broken {
			return &CorruptError{l.path, b.off, "changed while it was read"}
		}
		for _, r := range records {
			r.seq = b.seq
			apply(r)
		}
		for i := range c.damage {
			if d := &c.damage[i]; b.broken && d.first == b.seq {
				for _, r := range records {
					d.valid = append(d.valid, owner(r.path))
				}
			}
		}
	}
	return nil
}

// whose returns the paths of the WALs that damage affects, as far as they are among the known
// names: those in the log's records, and the files in its directory.
func whose(d lost, names map[string]bool) (known []string, unknown []uint32) {
	for _, o := range d.owners {
		found := false
		for name := range names {
			if owner(name) == o {
				known, found = append(known, name), true
			}
		}
		if !found {
			unknown = append(unknown, o)
		}
	}
	return known, unknown
}

// walNames lists the WALs in a directory below the log's.
func (l *Log) walNames(dir string) ([]string, error) {
	names, err := l.opts.FS.List(l.absolute(dir))
	if err != nil {
		return nil, err
	}
	var wals []string
	for _, name := range names {
		if _, ok := database(name); ok {
			wals = append(wals, path.Join(dir, name))
		}
	}
	return wals, nil
}

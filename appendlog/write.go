// SPDX-License-Identifier: MIT

package appendlog

import (
	"github.com/ringside-io/ringside/internal/loghook"
	"github.com/ringside-io/ringside/internal/sys"
)

// write writes the records of a group after the last record.
func (l *Log) write(g *group) error {
	if l.block == 0 {
		if err := l.choose(); err != nil {
			return err
		}
	}
	g.pos = Position{Segment: l.seg.index, Offset: l.off, Seq: l.seq}
	head := int(l.off % l.block)
	var out []byte
	if l.block > 1 || g.copies() {
		out = l.buffer(head, int(g.size))
	}
	b, n := g.encode(out, l.seg.seed, l.synced)
	if out != nil {
		l.buf = b
	}
	whole := b[:l.whole(int64(len(b)))]
	clear(whole[len(b):])
	if err := writeFull(l.file, whole, l.off-int64(head)); err != nil {
		return err
	}
	l.off += int64(len(b) - head)
	l.seq += n
	if l.block > 1 {
		copy(b, b[len(b)-int(l.off%l.block):])
	}
	return nil
}

// choose decides how the current segment is written: past the page cache, in whole blocks, if zeros are
// written ahead of its records and the file can do that. Then a write and its sync take less
// processor time (results/notes/appendlog.md). A block that has records already is written again with them, so
// l.buf begins with these.
func (l *Log) choose() error {
	l.block = 1
	if l.ahead == 0 || l.opts.SegmentSize%loghook.BlockSize != 0 {
		return nil
	}
	head := l.off % loghook.BlockSize
	if n, err := l.file.ReadAt(l.buffer(0, int(head))[:head], l.off-head); n < int(head) {
		return err
	}
	if l.file.Direct(true) {
		l.block = loghook.BlockSize
		l.ahead = l.whole(l.ahead)
	}
	return nil
}

// through makes writes to the current segment pass through the page cache.
func (l *Log) through() {
	l.file.Direct(false)
	l.block = 1
}

// whole returns an offset or a size, rounded up to whole blocks.
func (l *Log) whole(n int64) int64 { return (n + l.block - 1) / l.block * l.block }

// buffer returns the first bytes of l.buf, with room behind them for more, up to the end of a block.
func (l *Log) buffer(keep, more int) []byte {
	n := (keep + more + loghook.BlockSize - 1) / loghook.BlockSize * loghook.BlockSize
	if n > cap(l.buf) || l.buf == nil {
		b := sys.AlignedBytes(max(n, min(2*cap(l.buf), maxGroup), 4*loghook.BlockSize), loghook.BlockSize)
		copy(b, l.buf[:min(keep, cap(l.buf))])
		l.buf = b
	}
	return l.buf[:keep]
}

// zeros is the unit in which zeros are written ahead of the records.
var zeros = sys.AlignedBytes(256<<10, loghook.BlockSize)

// aheadFactor is how many times larger than a group Ahead must be. Otherwise writing the
// zeros costs more than the cheaper syncs save.
const aheadFactor = 8

// extend writes zeros after the records; see [Options.Ahead]. When the disk is full, it
// stops doing so. The zeros end at a multiple of Ahead, and their writes at multiples of their size: so the
// page cache keeps them in few large parts, which makes the syncs cheaper.
func (l *Log) extend(group int64) error {
	end := l.whole(l.off)
	if end <= l.written {
		return nil
	}
	l.written = end
	if group > l.ahead/aheadFactor {
		return nil
	}
	to := min((end/l.ahead+1)*l.ahead, l.opts.SegmentSize)
	for l.written < to {
		n := min(int64(len(zeros))-l.written%int64(len(zeros)), to-l.written)
		if err := writeFull(l.file, zeros[:n], l.written); err != nil {
			if !noSpace(err) {
				return err
			}
			l.ahead, l.written = 0, l.off
			l.through()
			return l.file.Truncate(l.off)
		}
		l.written += n
	}
	return nil
}

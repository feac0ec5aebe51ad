// SPDX-License-Identifier: MIT

package appendlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// SegmentInfo describes a segment of a log.
type SegmentInfo struct {
	// Index numbers the segments from 1.
	Index uint64
	// Path is the name of the file.
	Path string
	// FirstSeq is the number of the first record in it.
	FirstSeq uint64
	// Size is that of the file; of the segment being written, the bytes in use.
	Size int64
}

const (
	segmentSuffix = ".seg"
	newSuffix     = ".new" // while a segment is created
	indexDigits   = 16
)

// segmentName returns the name of a segment's file.
func segmentName(prefix string, index uint64) string {
	return fmt.Sprintf("%s%0*x%s", prefix, indexDigits, index, segmentSuffix)
}

// segmentIndex is the reverse; false when the name is none of a segment.
func segmentIndex(prefix, name string) (uint64, bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0, false
	}
	if digits, ok = strings.CutSuffix(digits, segmentSuffix); !ok || len(digits) != indexDigits {
		return 0, false
	}
	index, err := strconv.ParseUint(digits, 16, 64)
	return index, err == nil && index != 0 && segmentName(prefix, index) == name
}

// segment is one file of a log.
type segment struct {
	name     string
	index    uint64
	firstSeq uint64
	seed     uint32
	size     int64
	bad      string // why the header cannot be believed
}

// listSegments returns the segments of a log in order, their headers read, and
// the names of segments whose creation was interrupted.
func listSegments(st segmentStore, prefix string) (segs []segment, unfinished []string, err error) {
	names, err := st.List()
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		if bare, ok := strings.CutSuffix(name, newSuffix); ok {
			if _, ok := segmentIndex(prefix, bare); ok {
				unfinished = append(unfinished, name)
			}
		} else if index, ok := segmentIndex(prefix, name); ok {
			segs = append(segs, segment{name: name, index: index})
		}
	}
	slices.SortFunc(segs, func(a, b segment) int { return strings.Compare(a.name, b.name) })
	for i := range segs {
		if err := segs[i].readHeader(st); err != nil {
			return nil, nil, err
		}
	}
	return segs, unfinished, nil
}

// readHeader fills in what the file says of itself.
func (g *segment) readHeader(st segmentStore) error {
	f, err := st.Open(g.name, false)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return err
	}
	g.size = size
	b := make([]byte, min(size, segmentHeaderSize))
	if n, err := f.ReadAt(b, 0); n < len(b) {
		return err
	}
	h, seed, reason := decodeSegmentHeader(b)
	switch {
	case reason == "" && h.index != g.index:
		reason = "the segment is not the one that its name says"
	case reason == "" && h.firstSeq == 0:
		reason = "the segment has no first record"
	}
	if g.bad = reason; reason == "" {
		g.firstSeq, g.seed = h.firstSeq, seed
	} else if len(b) == segmentHeaderSize {
		g.seed = binary.LittleEndian.Uint32(b[60:]) // for salvage: it may be intact
	}
	return nil
}

// createSegment makes a new segment and its directory entry durable. It gets
// its name last, so that a segment under its name always has a header.
func createSegment(st segmentStore, prefix string, index, firstSeq uint64) (segment, segmentFile, error) {
	h := segmentHeader{index: index, firstSeq: firstSeq, salt: rand.Uint64(), created: time.Now().UnixNano()}
	b, seed := h.encode()
	g := segment{name: segmentName(prefix, index), index: index, firstSeq: firstSeq, seed: seed}
	if err := writeNew(st, g.name+newSuffix, b); err != nil {
		return g, nil, err
	}
	if err := st.Rename(g.name+newSuffix, g.name); err != nil {
		return g, nil, err
	}
	if err := st.Sync(); err != nil {
		return g, nil, err
	}
	f, err := st.Open(g.name, true)
	return g, f, err
}

// writeNew writes a file durably. It is closed before it is renamed, which not
// every system allows of an open file.
func writeNew(st segmentStore, name string, b []byte) error {
	f, err := st.Create(name)
	if err != nil {
		return err
	}
	err = writeFull(f, b, 0)
	if err == nil {
		err = f.Sync(true)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// rotate seals the segment that is written and begins the next. The caller
// leads.
func (l *Log) rotate() error {
	if l.opts.Sync == SyncNone && l.off > l.synced {
		if err := l.sync(); err != nil {
			return err
		}
	}
	g, f, err := createSegment(l.store, l.opts.Prefix, l.seg.index+1, l.seq)
	if err != nil {
		return err
	}
	l.seal()
	l.seg, l.file = g, f
	l.off, l.synced, l.written = segmentHeaderSize, segmentHeaderSize, segmentHeaderSize

	l.mu.Lock()
	defer l.mu.Unlock()
	l.segments[len(l.segments)-1].size = l.sealed[len(l.sealed)-1].Size
	l.segments = append(l.segments, g)
	l.stats.Rotations++
	l.end = Position{Segment: g.index, Offset: l.off, Seq: l.seq}
	return nil
}

// seal cuts off the zeros behind the last record and closes the file. Both are
// for tidiness: the records are durable, and zeros behind them mean nothing. So
// an error is no reason to stop.
func (l *Log) seal() {
	if l.written > l.off {
		l.file.Truncate(l.off)
	}
	l.file.Close()
	l.file = nil
	info := l.seg.info(l.store)
	info.Size = l.off
	l.sealed = append(l.sealed, info)
}

func (g *segment) info(st segmentStore) SegmentInfo {
	return SegmentInfo{Index: g.index, Path: st.Path(g.name), FirstSeq: g.firstSeq, Size: g.size}
}

// Rotate seals the segment that is being written and begins a new one, after
// the appends that were begun before. It does nothing when the segment holds no
// record. A failure is final: see [Log].
func (l *Log) Rotate() error {
	return l.control("rotate", func() error {
		if l.off == segmentHeaderSize {
			return nil
		}
		return l.rotate()
	})
}

// Segments lists the log's segments, oldest first; the last is the one that is
// being written. The files of the others do not change any more and may be
// copied; remove them through [Log.Trim] only.
func (l *Log) Segments() []SegmentInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	infos := make([]SegmentInfo, len(l.segments))
	for i := range l.segments {
		infos[i] = l.segments[i].info(l.store)
	}
	infos[len(infos)-1].Size = l.end.Offset
	return infos
}

// Trim removes the segments all of whose records lie before a position, durably
// and oldest first: the log is whole whenever that is interrupted. The segment
// being written stays. Readers that are in a removed segment may fail with
// fs.ErrNotExist. A failure concerns Trim only; calling it again is safe.
func (l *Log) Trim(before Position) error {
	l.trimming.Lock()
	defer l.trimming.Unlock()
	for {
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			return l.pathError("trim", errClosed)
		}
		if len(l.segments) < 2 || l.segments[1].firstSeq > before.Seq {
			l.mu.Unlock()
			return nil
		}
		oldest := l.segments[0]
		l.mu.Unlock()
		if err := l.removeSegment(oldest); err != nil {
			return err
		}
	}
}

func (l *Log) removeSegment(g segment) error {
	if err := l.store.Remove(g.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := l.store.Sync(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.segments = slices.Delete(l.segments, 0, 1)
	return nil
}

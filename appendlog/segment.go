// SPDX-License-Identifier: MIT

package appendlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
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
	// FirstSeq is the number of the first record in the segment. It is 0 if the header of
	// the segment is damaged; see [Options.AcceptLoss].
	FirstSeq uint64
	// Size is the size of the file in bytes. For the current segment it is the number of
	// bytes in use.
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

// segmentIndex is the reverse of segmentName. It returns false if the name is not a
// segment's.
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
	firstSeq uint64 // 0 if the header is not valid
	version  uint32
	log      uint64 // ID of the log; 0 in version 1
	seed     uint32
	size     int64
	bad      string // why the header is not valid
	foreign  bool   // the segment is one of another log
	sealed   bool
	seal     seal   // valid when sealed
	losses   []loss // what the seal lists as accepted, in the order of the file
}

// disown marks a segment of another log. Its numbers mean nothing in this one.
func (g *segment) disown() {
	g.bad, g.foreign, g.firstSeq = "the segment belongs to another log", true, 0
}

// accepted reports whether Options.AcceptLoss accepted losses in g, or between g and the
// next segment. A header that was damaged later was not accepted.
func (g *segment) accepted(next *segment) bool {
	return g.sealed && g.seal.flags&sealAccepted != 0 && next != nil &&
		g.seal.nextIndex == next.index && (g.seal.nextSeq == next.firstSeq || next.firstSeq == 0) &&
		(g.bad == "" || g.foreign || g.seal.firstSeq == 0)
}

// nextSeq returns the number of the first record of the next segment, 0 if neither its
// header nor the seal of g shows it.
func (g *segment) nextSeq(next *segment) uint64 {
	if next.firstSeq == 0 && g.sealed && !g.foreign && g.seal.nextIndex == next.index {
		return g.seal.nextSeq
	}
	return next.firstSeq
}

// content returns where the records of a segment end at the latest, and its seal, if it
// has one, begins.
func (g *segment) content(size int64) int64 {
	switch {
	case !g.sealed:
		return size
	case g.seal.flags&sealListed != 0:
		return size - sealSize - lossesSize(len(g.losses))
	}
	return size - sealSize
}

// listSegments returns the segments of a log in order, their headers read, and
// the names of segments whose creation was interrupted.
func listSegments(st segmentStore, prefix string) (segs []segment, unfinished []string, err error) {
	for gone := ""; ; {
		if segs, unfinished, err = nameSegments(st, prefix); err != nil {
			return nil, nil, err
		}
		missing := ""
		for i := range segs {
			if err = segs[i].read(st); err != nil {
				missing = segs[i].name
				break
			}
		}
		switch {
		case err == nil:
			return segs, unfinished, nil
		case !errors.Is(err, fs.ErrNotExist) || missing == gone:
			return nil, nil, err
		}
		gone = missing // probably by Trim: the names are read again
	}
}

// nameSegments is listSegments without the headers.
func nameSegments(st segmentStore, prefix string) (segs []segment, unfinished []string, err error) {
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
	return segs, unfinished, nil
}

// read reads the header and the seal of the segment.
func (g *segment) read(st segmentStore) error {
	f, err := st.Open(g.name, false)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := g.readSeal(f); err != nil {
		return err
	}
	b := make([]byte, min(g.size, segmentHeaderSize))
	if n, err := f.ReadAt(b, 0); n < len(b) {
		return err
	}
	h, seed, reason := decodeSegmentHeader(b)
	switch {
	case reason == "" && h.index != g.index:
		reason = "the segment has another number than its file name"
	case reason == "" && h.firstSeq == 0:
		reason = "the segment has no first record"
	}
	if g.bad = reason; reason == "" {
		g.firstSeq, g.seed, g.version, g.log = h.firstSeq, seed, h.version, h.log
		if g.sealed && (g.seal.log != g.log || g.seal.firstSeq != g.firstSeq) {
			g.sealed = g.seal.flags&sealAccepted != 0
		}
	} else if g.sealed {
		g.seed = g.seal.seed
	} else if len(b) == segmentHeaderSize {
		g.seed = binary.LittleEndian.Uint32(b[60:]) // for salvage: it may be intact
	}
	return nil
}

// readSeal reads the size of the segment, and its seal if it has one.
func (g *segment) readSeal(f segmentFile) error {
	for last := int64(-1); ; last = g.size {
		size, err := f.Size()
		if err != nil {
			return err
		}
		g.size = size
		at := size - sealSize
		if at < segmentHeaderSize || at%recordAlign != 0 {
			return nil
		}
		b := make([]byte, sealSize)
		n, err := f.ReadAt(b, at)
		if n == len(b) {
			g.seal, g.sealed = decodeSeal(b, at)
			g.sealed = g.sealed && g.seal.index == g.index
			if g.sealed && g.seal.flags&sealListed != 0 {
				g.losses, g.sealed, err = decodeLosses(f, at, g.seal.seed)
				return err
			}
			return nil
		}
		if err != io.EOF || size == last {
			return err
		}
		// A Log that seals the segment has just cut off its zeros.
	}
}

// gap is a place where durable records are missing.
type gap struct {
	CorruptError
	// after is the index of the segment that is sealed when the loss is accepted, -1 if
	// the loss lies before all segments.
	after int
}

// checkSegments returns the gaps between segments. It reads nothing.
func checkSegments(st segmentStore, segs []segment, first uint64) (gaps []gap) {
	add := func(after int, g *segment, lost uint64, reason string, args ...any) {
		gaps = append(gaps, gap{after: after, CorruptError: CorruptError{Path: st.Path(g.name),
			At: Position{Segment: g.index, Seq: g.firstSeq}, Reason: fmt.Sprintf(reason, args...), Lost: lost}})
	}
	if g := &segs[0]; g.index > first && first != 0 {
		add(-1, g, 0, "segment %d is missing before it", first)
	}
	for i := range segs {
		g, next := &segs[i], (*segment)(nil)
		if i+1 < len(segs) {
			next = &segs[i+1]
		}
		switch {
		case g.accepted(next):
		case g.bad != "":
			add(i, g, 0, "%s", g.bad)
		case next == nil:
		case next.index != g.index+1:
			lost := uint64(0)
			if g.sealed && next.firstSeq > g.seal.nextSeq {
				lost = next.firstSeq - g.seal.nextSeq
			}
			add(i, next, lost, "segment %d is missing before it", g.index+1)
		case next.bad != "":
		case next.firstSeq < g.firstSeq, g.sealed && g.version > 1 && g.seal.nextSeq != next.firstSeq:
			add(i, next, 0, "%s", badSeq)
		}
	}
	return gaps
}

// createSegment creates a segment, makes it and its directory entry durable, and locks
// it. The file gets its name last, so a segment under its name always has a header.
func createSegment(st segmentStore, prefix string, index, firstSeq, log uint64) (segment, segmentFile, error) {
	h := segmentHeader{version: segmentVersion, log: log, index: index, firstSeq: firstSeq, salt: rand.Uint64(), created: time.Now().UnixNano()}
	b, seed := h.encode()
	g := segment{name: segmentName(prefix, index), index: index, firstSeq: firstSeq, seed: seed, version: h.version, log: log}
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
	if err != nil {
		return g, nil, err
	}
	if err := lock(f, st.Path(g.name)); err != nil {
		f.Close()
		return g, nil, err
	}
	return g, f, nil
}

// end writes a segment's seal at an offset and makes it durable.
func (g *segment) end(f segmentFile, off int64, nextIndex, nextSeq uint64) error {
	g.seal = seal{offset: uint32(off), log: g.log, index: g.index, firstSeq: g.firstSeq,
		nextIndex: nextIndex, nextSeq: nextSeq, seed: g.seed}
	g.sealed, g.size = true, off+sealSize
	return g.writeSeal(f)
}

// accept writes a list of accepted losses and a seal behind everything that the segment
// has, and makes them durable.
func (g *segment) accept(f segmentFile, losses []loss, next *segment) error {
	at := max(segmentHeaderSize, (g.size+recordAlign-1)&^(recordAlign-1))
	if n := len(losses); n > 0 && losses[n-1].next >= g.size {
		losses[n-1].next = at
	}
	g.losses = losses
	at += lossesSize(len(losses))
	g.seal = seal{flags: sealAccepted | sealListed, offset: uint32(at), log: g.log, index: g.index, firstSeq: g.firstSeq,
		nextIndex: next.index, nextSeq: g.nextSeq(next), seed: g.seed}
	g.sealed, g.size = true, at+sealSize
	return g.writeSeal(f)
}

// writeSeal writes the seal, after the list of losses if there is one.
func (g *segment) writeSeal(f segmentFile) error {
	b, at := g.seal.encode(), int64(g.seal.offset)
	if g.seal.flags&sealListed != 0 {
		b = append(encodeLosses(g.losses, g.seal.seed), b...)
		at -= lossesSize(len(g.losses))
	}
	if err := writeFull(f, b, at); err != nil {
		return err
	}
	return f.Sync(false)
}

func (g *segment) info(st segmentStore) SegmentInfo {
	return SegmentInfo{Index: g.index, Path: st.Path(g.name), FirstSeq: g.firstSeq, Size: g.size}
}

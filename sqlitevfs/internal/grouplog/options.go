// SPDX-License-Identifier: MIT

package grouplog

import (
	"cmp"
	"fmt"
	"path/filepath"

	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
)

// Options configure a [Log]; the zero value works.
type Options struct {
	// FS is the file system; nil means the operating system's.
	FS disk.FS
	// Name is the name of the log's file in its directory; "" is
	// "ringside-wal.log". It may not contain a path separator.
	Name string
	// SegmentSize is the unit, in bytes, in which the log grows and reuses space. It is a multiple
	// of 4096. 0 means 4 MiB, or the size that the log already has.
	SegmentSize int64
	// FirstSegments is the size of the two segments of a new log. 0 means 256 KiB, and at most
	// SegmentSize. They are no longer used once the log has grown.
	FirstSegments int64
	// MaxSize limits the log's file, in bytes. At least three segments are used if the disk has
	// room. 0 means 64 MiB.
	MaxSize int64
	// MaxRecord is the maximum size of a commit in the log, in bytes of frames. Larger commits sync
	// their WAL, because the log would only write their data twice. 0 means 20 KiB.
	MaxRecord int
	// Always makes every commit of at most MaxRecord use the log, also one that is alone. Tests set it.
	Always bool
	// Local restricts the log to WALs in its own directory. A log with others is left unchanged,
	// see [ErrElsewhere].
	Local bool
	// Known is an earlier report of the same log. If the log has not changed since, Recover returns
	// it.
	Known *Report
	// Salvage opens a log with damaged acknowledged records, and replays the rest. Without it, such
	// damage is a [*CorruptError].
	Salvage bool
}

// largeCommit is the size, in bytes of frames, above which a commit gains nothing from the log.
// docs/grouplog.md has the measurements.
const largeCommit = 20 << 10

const (
	defaultName    = "ringside-wal.log"
	defaultSegment = 4 << 20
	minSegment     = 4 * block
	maxSegment     = 64 << 20
	maxFile        = 1 << 30 // a longer file is not a log
	defaultMaxSize = 64 << 20
	maxBatch       = 1 << 20 // maximum size of one write
	minSegments    = 3       // one being written, one ready, one being emptied
	firstSegments  = 2       // at creation: one being written and one ready
	firstSize      = 256 << 10
	fewWALs        = 2 // up to so many WALs are synced before the log grows
	manyReclaims   = 8 // after so many reclaims the log grows beyond its first segments
)

func validSegment(n int64) bool { return n >= minSegment && n <= maxSegment && n%block == 0 }

// withDefaults checks the options and sets defaults.
func (o Options) withDefaults() (Options, error) {
	if o.FS == nil {
		o.FS = disk.OS
	}
	o.Name = cmp.Or(o.Name, defaultName)
	if filepath.Base(o.Name) != o.Name {
		return o, fmt.Errorf("grouplog: %q is not the name of a file", o.Name)
	}
	o.SegmentSize = cmp.Or(o.SegmentSize, defaultSegment)
	if !validSegment(o.SegmentSize) {
		return o, fmt.Errorf("grouplog: segment size %d is not a multiple of %d between %d and %d", o.SegmentSize, block, minSegment, maxSegment)
	}
	o.FirstSegments = cmp.Or(o.FirstSegments, min(firstSize, o.SegmentSize))
	if !validSegment(o.FirstSegments) || o.FirstSegments > o.SegmentSize {
		return o, fmt.Errorf("grouplog: the size of the first segments, %d, is not a multiple of %d between %d and %d", o.FirstSegments, block, minSegment, o.SegmentSize)
	}
	o.MaxSize = cmp.Or(o.MaxSize, defaultMaxSize)
	o.MaxRecord = cmp.Or(o.MaxRecord, largeCommit)
	return o, nil
}

// Path returns the name of the log's file in a directory.
func Path(dir string, o Options) string {
	return filepath.Join(dir, cmp.Or(o.Name, defaultName))
}

// segments returns the maximum number of segments of a size.
func (o Options) segments(size int64) int { return max(minSegments, int(o.MaxSize/size)) }

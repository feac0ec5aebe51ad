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
	// FS is where the files are; nil is the operating system.
	FS disk.FS
	// Name is the name of the log's file in its directory; "" is
	// "ringside-wal.log". It may not contain a path separator.
	Name string
	// SegmentSize is in how large pieces the log grows and is used again, in
	// bytes: a multiple of 4096. 0 is 4 MiB, or what the log already has.
	SegmentSize int64
	// FirstSegments is the size of the two pieces that a new log has, 256 KiB and
	// at most SegmentSize if it is 0. They are not used any more once the log has
	// grown.
	FirstSegments int64
	// MaxSize bounds the log's file in bytes; at least three segments are
	// used if there is room. 0 is 64 MiB.
	MaxSize int64
	// MaxRecord is how many bytes of frames a commit may bring into the log;
	// larger ones sync their WAL, as the log would only write twice what is
	// written anyway. 0 is 80 KiB.
	MaxRecord int
	// MaxAlone is the same for a commit while there is no other, which does not
	// share its write. 0 is 20 KiB.
	MaxAlone int
	// NoTrials has every commit that MaxRecord and MaxAlone admit use the log, without
	// measuring whether it gains. Tests set it.
	NoTrials bool
	// Ways are those of all logs of the file system; nil measures for this log only.
	Ways *Ways
	// Local takes and replays commits of WALs in the log's own directory only. A
	// log that has others is left as it is, see [ErrElsewhere].
	Local bool
	// Known is an earlier report of the same log: where the log has not changed
	// since, Recover returns it.
	Known *Report
	// Salvage opens a log whose acknowledged records are damaged, and replays
	// what is left. Otherwise that is a [*CorruptError].
	Salvage bool
}

const (
	defaultName      = "ringside-wal.log"
	defaultSegment   = 4 << 20
	minSegment       = 4 * block
	maxSegment       = 64 << 20
	maxFile          = 1 << 30 // a longer one is no log
	defaultMaxSize   = 64 << 20
	defaultMaxRecord = 80 << 10
	defaultMaxAlone  = 20 << 10
	maxBatch         = 1 << 20 // what one write brings at most
	minSegments      = 3       // one being written, one ready, one being emptied
	firstSegments    = 2       // at creation: one being written and one ready
	firstSize        = 256 << 10
	fewWALs          = 2 // so many are rather synced than the log grows
)

func validSegment(n int64) bool { return n >= minSegment && n <= maxSegment && n%block == 0 }

// withDefaults checks the options and fills in what is zero.
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
	o.MaxRecord = cmp.Or(o.MaxRecord, defaultMaxRecord)
	o.MaxAlone = cmp.Or(o.MaxAlone, defaultMaxAlone)
	return o, nil
}

// Path returns the name of the log's file in a directory.
func Path(dir string, o Options) string {
	return filepath.Join(dir, cmp.Or(o.Name, defaultName))
}

// segments returns how many segments of a size the log may have.
func (o Options) segments(size int64) int { return max(minSegments, int(o.MaxSize/size)) }

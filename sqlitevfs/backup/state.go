// SPDX-License-Identifier: MIT

package backup

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync"

	"github.com/superfly/ltx"

	"github.com/ringside-io/ringside/sqlitevfs/internal/grouplog"
)

// sums are the checksums of the pages of a database, and together that of the database: a state that can be compared
// with the one that the target has, without its pages.
type sums struct {
	page []uint64 // without ltx.ChecksumFlag; 0 for the page of SQLite's locks
	all  uint64
}

func (s *sums) checksum() ltx.Checksum { return ltx.ChecksumFlag | ltx.Checksum(s.all) }

// set changes a page, and makes room for it.
func (s *sums) set(n uint32, sum uint64) {
	for int(n) > len(s.page) {
		s.page = append(s.page, 0)
	}
	s.all ^= s.page[n-1] ^ sum
	s.page[n-1] = sum
}

// resize drops the pages behind the end of the database.
func (s *sums) resize(pages uint32) {
	for len(s.page) > int(pages) {
		s.all ^= s.page[len(s.page)-1]
		s.page = s.page[:len(s.page)-1]
	}
}

func pageSum(n uint32, p []byte) uint64 {
	return uint64(ltx.ChecksumPage(n, p) &^ ltx.ChecksumFlag)
}

// base is a database as its first connection found it: the sums of the file, and the frames of its WAL.
type base struct {
	sums     sums
	pageSize int
	frames   []frameSum
	salt     [8]byte // of the WAL
}

type frameSum struct {
	page, size uint32 // size is not 0 if the frame ends a transaction
	sum        uint64
	end        int64 // of the frame in the WAL
}

// match finds the state with a checksum: that of the file alone, or that after a commit of the WAL, which ends at the
// returned offset. b then has the sums of that state.
func (b *base) match(want ltx.Checksum) (end int64, ok bool) {
	if b.sums.checksum() == want && b.pageSize > 0 {
		return 0, true
	}
	for _, f := range b.frames {
		b.sums.set(f.page, f.sum)
		if f.size != 0 {
			if b.sums.resize(f.size); b.sums.checksum() == want {
				return f.end, true
			}
		}
	}
	return 0, false
}

// last returns the sums after the newest commit. b is then of no more use.
func (b *base) last() *sums {
	for _, f := range b.frames {
		b.sums.set(f.page, f.sum)
		if f.size != 0 {
			b.sums.resize(f.size)
		}
	}
	return &b.sums
}

// readBase reads the files of a database. The caller ensures that the database file does not change meanwhile.
func readBase(path string) (*base, error) {
	b := &base{}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, pages, err := dimensions(f)
	if err != nil {
		return b, ignoreEOF(err)
	}
	b.pageSize = size
	b.sums.page = make([]uint64, 0, pages)
	err = eachPage(f, size, pages, func(n uint32, p []byte) error {
		b.sums.set(n, pageSum(n, p))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return b, b.readWAL(path)
}

// eachPage reads the pages of a database except that of SQLite's locks.
func eachPage(f io.ReaderAt, size int, pages uint32, fn func(n uint32, p []byte) error) error {
	buf := make([]byte, max(size, 256<<10/size*size))
	lock := ltx.LockPgno(uint32(size))
	for n := uint32(1); n <= pages; {
		p := buf[:min(len(buf), int(pages-n+1)*size)]
		if k, err := f.ReadAt(p, int64(n-1)*int64(size)); k < len(p) {
			return err
		}
		for ; len(p) > 0; p, n = p[size:], n+1 {
			if n == lock {
				continue
			}
			if err := fn(n, p[:size]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *base) readWAL(path string) error {
	f, err := os.Open(path + "-wal")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer f.Close()
	c, err := begin(f)
	if err != nil || c.Header.PageSize != b.pageSize {
		return ignoreEOF(err)
	}
	b.salt = c.Header.Salt
	_, _, err = readFrames(f, &c, -1, func(page, size uint32, p []byte, end int64) {
		b.frames = append(b.frames, frameSum{page, size, pageSum(page, p), end})
	})
	return err
}

// begin returns the beginning of a WAL. The error is io.EOF if there is none.
func begin(f io.ReaderAt) (grouplog.Cursor, error) {
	var head [walHeaderSize]byte
	if n, err := f.ReadAt(head[:], 0); n < len(head) {
		return grouplog.Cursor{}, err
	}
	h, err := grouplog.ParseHeader(head[:])
	if err != nil {
		return grouplog.Cursor{}, io.EOF // a WAL that SQLite ignores
	}
	return h.Begin(), nil
}

const walHeaderSize = 32

// readFrames calls fn for each frame from c on, up to the one that begins at last; -1 means the last one that ends a
// transaction. It returns the size of the database in pages after it, and whether last was reached.
func readFrames(f io.ReaderAt, c *grouplog.Cursor, last int64, fn func(page, size uint32, p []byte, end int64)) (pages uint32, reached bool, err error) {
	frame := c.Header.Frame()
	buf := newFrames(frame)
	defer frameBuffers.Put(&buf)
	type pending struct {
		page uint32
		end  int64
		p    []byte
	}
	var open []pending // of a transaction whose end is not known
	if last < 0 {
		committed := *c
		defer func() { *c = committed }()
		emit := fn
		fn = func(page, size uint32, p []byte, end int64) {
			if emit(page, size, p, end); size != 0 {
				committed = *c
			}
		}
	}
	for last < 0 || c.End <= last {
		n, err := f.ReadAt(buf, c.End)
		if err != nil && err != io.EOF {
			return pages, false, err
		}
		p := buf[:n/frame*frame]
		if len(p) == 0 {
			break
		}
		for ; len(p) > 0 && (last < 0 || c.End <= last); p = p[frame:] {
			page, size, ok := c.Next(p[:frame])
			if !ok {
				return pages, false, nil
			}
			data := p[frame-c.Header.PageSize : frame]
			if last >= 0 {
				fn(page, size, data, c.End)
			} else if open = append(open, pending{page, c.End, append([]byte(nil), data...)}); size != 0 {
				for i, o := range open {
					s := uint32(0)
					if i == len(open)-1 {
						s = size
					}
					fn(o.page, s, o.p, o.end)
				}
				open = open[:0]
			}
			if size != 0 {
				pages = size
			}
			if c.End > last && last >= 0 {
				return pages, size != 0, nil
			}
		}
	}
	return pages, false, nil
}

// frameBuffers are those in which frames are read.
var frameBuffers sync.Pool

// newFrames returns a buffer for a number of whole frames.
func newFrames(frame int) []byte {
	size := max(frame, 128<<10/frame*frame)
	if b, ok := frameBuffers.Get().(*[]byte); ok && len(*b) == size {
		return *b
	}
	return make([]byte, size)
}

func ignoreEOF(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// dimensions returns the size of a page, and the number of pages as SQLite determines it. The error is io.EOF if the file
// is empty.
func dimensions(f interface {
	io.ReaderAt
	Stat() (os.FileInfo, error)
}) (size int, pages uint32, err error) {
	var p [100]byte
	if n, err := f.ReadAt(p[:], 0); n < len(p) {
		return 0, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	if size, err = pageSizeOf(p[:]); err != nil {
		return 0, 0, err
	}
	pages = uint32(info.Size() / int64(size))
	if n := pagesOf(p[:]); n != 0 && n < pages {
		pages = n
	}
	return size, pages, nil
}

var errNoDatabase = errors.New("the file is no SQLite database")

func pageSizeOf(p []byte) (int, error) {
	size := int(binary.BigEndian.Uint16(p[16:]))
	if size == 1 {
		size = 65536
	}
	if string(p[:16]) != "SQLite format 3\x00" || !ltx.IsValidPageSize(uint32(size)) {
		return 0, errNoDatabase
	}
	return size, nil
}

// pagesOf returns the size of the database in its first page, 0 if that is not valid.
func pagesOf(p []byte) uint32 {
	if string(p[24:28]) != string(p[92:96]) {
		return 0
	}
	return binary.BigEndian.Uint32(p[28:])
}

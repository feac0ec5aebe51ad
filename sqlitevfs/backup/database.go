// SPDX-License-Identifier: MIT

package backup

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/superfly/ltx"

	"github.com/ringside-io/ringside/sqlitevfs"
	"github.com/ringside-io/ringside/sqlitevfs/internal/grouplog"
)

// database takes the commits of one database. The methods of sqlitevfs.Observed are called by SQLite's connections: they
// note what has changed, and copy pages only where the next commit would overwrite them.
type database struct {
	b          *Backup
	name, path string

	end     atomic.Int64 // where the frame of the newest commit begins in the WAL; 0: none in this life
	waiting atomic.Bool  // in the queue of the Backup
	writing atomic.Bool  // a transaction of a rollback mode has begun
	begun   atomic.Int64 // when it has, in milliseconds

	baseState atomic.Int32
	baseMu    sync.Mutex
	base      *base

	mu      sync.Mutex
	cur     grouplog.Cursor // up to where the WAL was read
	life    int             // how many lives of the WAL were read to their end; -1: the first one has not begun
	over    bool            // the life of cur is at its end
	pages   map[uint32]image
	size    uint32 // pages of the database after the newest commit that was taken
	page    int    // bytes of a page
	full    bool   // the pages that were taken are not all: a snapshot is needed
	why     error  // of full
	since   time.Time
	epoch   uint64 // counts the times since which a flush was requested
	closed  os.FileInfo
	copying bool // a snapshot takes any life of the WAL
	adopted bool // it was found, not opened: all that the WAL has is to be taken

	stream // of the goroutine that flushes
}

// image is a page that changed. at is where its frame ends in the first life of the WAL, 0 for others.
type image struct {
	data []byte
	at   int64
}

const (
	baseUnknown int32 = iota
	baseRead
	baseLost
)

// maxBase is the size up to which a database is read while a connection waits before its first change to the file. It
// takes a millisecond for each MiB.
const maxBase = 16 << 20

// Changing implements sqlitevfs.Observed.
func (d *database) Changing(checkpoint bool) {
	if !checkpoint {
		d.beginWrite()
	}
	if d.baseState.Load() != baseUnknown {
		return
	}
	if info, err := os.Stat(d.path); err == nil && info.Size() > maxBase {
		d.baseState.CompareAndSwap(baseUnknown, baseLost)
		return
	}
	d.needBase()
}

// beginWrite notes that a transaction of a rollback mode has begun. There is one at a time.
func (d *database) beginWrite() {
	if !d.writing.Load() {
		d.begun.Store(time.Now().UnixMilli())
		d.writing.Store(true)
	}
}

// needBase reads the base, unless the database file has been changed since it was opened.
func (d *database) needBase() {
	d.baseMu.Lock()
	defer d.baseMu.Unlock()
	if d.baseState.Load() != baseUnknown {
		return
	}
	b, err := readBase(d.path)
	if err != nil {
		d.baseState.CompareAndSwap(baseUnknown, baseLost)
	} else if d.base = b; !d.baseState.CompareAndSwap(baseUnknown, baseRead) {
		d.base = nil
	}
}

// Committed implements sqlitevfs.Observed.
func (d *database) Committed(frame int64) {
	d.end.Store(frame)
	d.wait()
}

// wait puts the database into the queue.
func (d *database) wait() {
	if d.waiting.CompareAndSwap(false, true) {
		d.mu.Lock()
		d.note()
		d.mu.Unlock()
		d.b.enqueue(d)
	}
}

// note begins an epoch. The caller holds the mutex.
func (d *database) note() {
	d.epoch++
	if d.since.IsZero() {
		d.since = time.Now()
	}
}

// Restarting implements sqlitevfs.Observed.
func (d *database) Restarting(removed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.life == 0 && d.cur.End == 0 || d.full {
		if f, err := os.Open(d.path + "-wal"); err == nil {
			if c, err := begin(f); err == nil && d.cur.End == 0 || d.full {
				d.cur = c
			}
			f.Close()
		}
	}
	d.take()
	d.end.Store(0)
	if d.over = true; removed {
		d.cur, d.over = grouplog.Cursor{}, false
	}
	d.life++
}

// take copies the pages of the commits that the WAL has and that were not taken yet. The caller holds the mutex.
func (d *database) take() {
	end := d.end.Load()
	if end == 0 || d.full || end < d.cur.End && !d.over {
		return
	}
	f, err := os.Open(d.path + "-wal")
	if err != nil {
		d.lose(err)
		return
	}
	defer f.Close()
	if err := d.enter(f, true); err != nil {
		d.lose(err)
		return
	}
	from := d.cur.End
	reached, err := d.read(f, end)
	if err != nil || !reached {
		d.lose(errors.Join(fmt.Errorf("%w: its WAL is read from %d to %d, not to the frame at %d", errForeign, from, d.cur.End, end), err))
	}
}

var (
	errForeign = errors.New("another process has changed the database")
	errMemory  = errors.New("the changes did not fit into Options.Memory")
	errBase    = errors.New("the target has another state of the database")
	errPieces  = errors.New("a transaction wrote too many pieces")
)

// enter goes to the life that the WAL has now. told reports that a commit of it is known. A WAL whose frames a power cut has
// taken begins again with the salts that it had. The caller holds the mutex.
func (d *database) enter(f io.ReaderAt, told bool) error {
	c, err := begin(f)
	if err != nil {
		return err
	}
	was, is := d.cur.Header.Salt, c.Header.Salt
	switch known := d.cur.End != 0; {
	case known && was == is && !(d.over && told):
		return nil // the same life, or the next one has no commit yet
	case known && was != is && !d.copying && !(d.over && follows(was, is)):
		return fmt.Errorf("%w: its WAL has the salts %x after %x", errForeign, is, was)
	}
	d.cur, d.over = c, false
	return nil
}

// follows reports whether a life of a WAL with salts follows another: SQLite adds one to the first.
func follows(was, is [8]byte) bool {
	return binary.BigEndian.Uint32(is[:]) == binary.BigEndian.Uint32(was[:])+1
}

// read takes the frames up to the one that begins at last. The caller holds the mutex.
func (d *database) read(f io.ReaderAt, last int64) (reached bool, err error) {
	d.setPage(d.cur.Header.PageSize)
	size, reached, err := readFrames(f, &d.cur, last, func(n, _ uint32, p []byte, end int64) {
		at := int64(0)
		if d.life == 0 {
			at = end
		}
		d.keep(n, p, at)
	})
	if size != 0 {
		d.size = size
	}
	return reached, err
}

// setPage notes the size of a page. Pages of another size make the ones that were taken useless.
func (d *database) setPage(size int) {
	if d.page != 0 && d.page != size {
		d.lose(errBase)
		d.drop()
	}
	d.page = size
}

func (d *database) keep(n uint32, p []byte, at int64) {
	if d.full {
		return
	}
	i, ok := d.pages[n]
	if !ok {
		if d.b.memory.Add(int64(len(p))) > d.b.opts.Memory {
			d.b.memory.Add(int64(-len(p)))
			d.lose(errMemory)
			return
		}
		i.data = newPage(len(p))
	}
	copy(i.data, p)
	i.at = at
	d.pages[n] = i
}

// pagePool has pages that were sent.
var pagePool sync.Pool

func newPage(size int) []byte {
	if p, ok := pagePool.Get().(*[]byte); ok && len(*p) == size {
		return *p
	}
	return make([]byte, size)
}

func freePage(p []byte) { pagePool.Put(&p) }

// lose gives the pages up: the next object will be a snapshot. The caller holds the mutex.
func (d *database) lose(err error) {
	if !d.full {
		d.full, d.why = true, err
		d.drop()
	}
}

// drop forgets the pages. The caller holds the mutex.
func (d *database) drop() {
	d.b.memory.Add(-int64(len(d.pages) * d.page))
	clear(d.pages)
}

// Changed implements sqlitevfs.Observed.
func (d *database) Changed(written []sqlitevfs.Piece) {
	d.mu.Lock()
	d.writing.Store(false)
	if err := d.changed(written); err != nil {
		d.lose(err)
	}
	d.mu.Unlock()
	d.wait()
}

func (d *database) changed(written []sqlitevfs.Piece) error {
	if d.full || len(written) == 0 {
		return errPieces
	}
	f, err := os.Open(d.path)
	if err != nil {
		return err
	}
	defer f.Close()
	size, pages, err := dimensions(f)
	if err != nil {
		return err
	}
	d.setPage(size)
	d.size = pages
	p := make([]byte, size)
	for _, w := range written {
		for n := w.Off / int64(size); n*int64(size) < w.Off+w.Len && n < int64(pages); n++ {
			if _, err := f.ReadAt(p, n*int64(size)); err != nil {
				return err
			}
			d.keep(uint32(n)+1, p, 0)
		}
	}
	return nil
}

// Closed implements sqlitevfs.Observed.
func (d *database) Closed() {
	d.writing.Store(false)
	d.mu.Lock()
	d.closed, _ = os.Stat(d.path)
	d.mu.Unlock()
}

// reopened continues after Closed, if no other program has changed the file meanwhile.
func (d *database) reopened() {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.closed
	if was == nil {
		return
	}
	d.closed, d.cur, d.over = nil, grouplog.Cursor{}, false
	info, err := os.Stat(d.path)
	wal, werr := os.Stat(d.path + "-wal")
	same := err == nil && os.SameFile(was, info) && was.Size() == info.Size() && was.ModTime().Equal(info.ModTime())
	if !same || werr == nil && wal.Size() > 0 {
		d.lose(errForeign)
	}
}

// snapshot copies the database while it is used: the file, which changes meanwhile, and all frames that were or
// will be written into it. The caller has no lock; one goroutine at a time calls it.
func (d *database) snapshot() (s snapshot, err error) {
	d.mu.Lock()
	d.full, d.why = false, nil
	d.size = 0 // it was not counted while pages were given up
	d.drop()
	if !d.over {
		d.cur = grouplog.Cursor{}
	}
	d.mu.Unlock()
	defer func() {
		if err != nil {
			if s.file != nil {
				s.file.Close()
			}
			d.mu.Lock()
			d.lose(err)
			d.mu.Unlock()
		}
	}()
	if s, err = d.copyFile(); err != nil {
		return s, err
	}
	for deadline := time.Now().Add(5 * time.Second); d.writing.Load(); {
		if time.Now().After(deadline) {
			return s, errBusy
		}
		time.Sleep(time.Millisecond)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.copying = true
	defer func() { d.copying = false }()
	d.waiting.Store(false) // a later commit begins a new epoch, which this snapshot does not end
	if s.at = stamp(); d.end.Load() != 0 {
		s.at = d.takeStamped()
	} else if err := d.takeAll(); err != nil {
		return s, err
	}
	if d.full {
		return s, d.why
	}
	_, s.epoch = d.flushing()
	s.changed, s.commit = d.pages, s.pages
	if d.size != 0 {
		s.commit = d.size
	} else if first, ok := d.pages[1]; ok {
		s.commit = pagesOf(first.data)
	}
	if d.page != 0 && s.page != 0 && d.page != s.page {
		return s, errForeign
	}
	s.page = max(s.page, d.page)
	d.pages = make(map[uint32]image)
	return s, nil
}

var errBusy = errors.New("a transaction takes long")

// flushing ends the time since which commits wait. The caller holds the mutex.
func (d *database) flushing() (since time.Time, epoch uint64) {
	since = d.since
	d.since = time.Time{}
	return since, d.epoch
}

// takeAll takes what the WAL has, which other lives of the process have written. The caller holds the mutex.
func (d *database) takeAll() error {
	f, err := os.Open(d.path + "-wal")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer f.Close()
	if err := d.enter(f, false); err != nil || d.over {
		return ignoreEOF(err)
	}
	_, err = d.read(f, -1)
	return err
}

// snapshot is a copy of a database: a file, and the pages that changed while it was made.
type snapshot struct {
	file    copied
	page    int
	pages   uint32 // in the file
	commit  uint32 // of the database
	changed map[uint32]image
	epoch   uint64
	at      time.Time // when the newest commits were taken
}

// copied is a copy of a file. Close frees what it takes.
type copied interface {
	io.ReaderAt
	io.Closer
}

// inMemory is a copy whose bytes Options.Memory counts.
type inMemory struct {
	*bytes.Reader
	b *Backup
}

func (m inMemory) Close() error {
	m.b.memory.Add(-m.Size())
	return nil
}

// onDisk is a copy in a file of Options.Scratch.
type onDisk struct{ *os.File }

func (c onDisk) Close() error {
	defer os.Remove(c.Name()) // gone, on most systems
	return c.File.Close()
}

// copyFile copies the database file: to memory if it takes no more than a 64th of Options.Memory, as to make and to remove a
// file would take longer.
func (d *database) copyFile() (s snapshot, err error) {
	f, err := os.Open(d.path)
	if err != nil {
		return s, err
	}
	defer f.Close()
	size, pages, err := dimensions(f)
	if err != nil {
		s.file = inMemory{bytes.NewReader(nil), d.b}
		return s, ignoreEOF(err)
	}
	s.page, s.pages = size, pages
	total := int64(pages) * int64(size)
	if total <= d.b.opts.Memory/64 && d.b.memory.Load()+total <= d.b.opts.Memory {
		p := make([]byte, total)
		s.file = inMemory{bytes.NewReader(p), d.b}
		d.b.memory.Add(total)
		_, err = io.ReadFull(io.NewSectionReader(f, 0, total), p)
		return s, err
	}
	scratch, err := d.b.scratch()
	if err != nil {
		return s, err
	}
	s.file = onDisk{scratch}
	_, err = io.Copy(scratch, io.NewSectionReader(f, 0, total))
	return s, err
}

// each calls fn for each page.
func (s *snapshot) each(fn func(n uint32, p []byte) error) error {
	p := make([]byte, s.page)
	lock := ltx.LockPgno(uint32(s.page))
	for n := uint32(1); n <= s.commit; n++ {
		if n == lock {
			continue
		}
		page := p
		if i, ok := s.changed[n]; ok {
			page = i.data
		} else if k, err := s.file.ReadAt(p, int64(n-1)*int64(s.page)); k < len(p) || n > s.pages {
			return errors.Join(io.ErrUnexpectedEOF, err)
		}
		if err := fn(n, page); err != nil {
			return err
		}
	}
	return nil
}

// SPDX-License-Identifier: MIT

package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/ncruces/go-sqlite3"

	"github.com/ringside-io/ringside/internal/walformat"
)

const (
	walHeaderSize   = walformat.HeaderSize
	frameHeaderSize = walformat.FrameHeaderSize
)

// The parts of a WAL's index, https://www.sqlite.org/walformat.html. Words have the native
// byte order; in the build of SQLite that this driver uses, they are little endian.
const (
	indexHeaderSize = 48  // there are two copies of it
	indexInfo       = 96  // how much was checkpointed, and the marks of readers
	indexPages      = 136 // the first block's page numbers
	indexBlock      = 32 << 10
	indexHash       = 16 << 10 // where the hash table of a block begins
	indexSlots      = 8192
	framesInBlock   = 4096
	framesInFirst   = framesInBlock - indexPages/4
	lockWrite       = 120 // the byte of the writer's lock
)

var errIndex = errors.New("the index of the WAL, its -shm file, is not valid")

// indexHeader is the state of a WAL as its index has it.
type indexHeader struct {
	change   uint32
	pageSize uint32 // 0: the WAL has no header
	frames   uint32
	pages    uint32 // of the database
	sum      walformat.Sum
	salt     [2]uint32 // as they are in the WAL, read as big-endian words
}

func (h *indexHeader) parse(p []byte) error {
	if [indexHeaderSize]byte(p) != [indexHeaderSize]byte(p[indexHeaderSize:]) {
		return errIndex
	}
	sum := walformat.Sum{}.Add(p[:40], false)
	if binary.LittleEndian.Uint32(p) != walformat.Version || p[12] != 1 ||
		sum != (walformat.Sum{binary.LittleEndian.Uint32(p[40:]), binary.LittleEndian.Uint32(p[44:])}) {
		return errIndex
	}
	if p[13] != 0 {
		return errors.New("the WAL was written on a machine with another byte order; checkpoint it there")
	}
	h.change = binary.LittleEndian.Uint32(p[8:])
	size := uint32(binary.LittleEndian.Uint16(p[14:]))
	h.pageSize = size&0xfe00 | size&1<<16
	h.frames, h.pages = binary.LittleEndian.Uint32(p[16:]), binary.LittleEndian.Uint32(p[20:])
	h.sum = walformat.Sum{binary.LittleEndian.Uint32(p[24:]), binary.LittleEndian.Uint32(p[28:])}
	h.salt = [2]uint32{binary.BigEndian.Uint32(p[32:]), binary.BigEndian.Uint32(p[36:])}
	return nil
}

func (h *indexHeader) append(p []byte) []byte {
	begin := len(p)
	p = binary.LittleEndian.AppendUint32(p, walformat.Version)
	p = append(p, 0, 0, 0, 0)
	p = binary.LittleEndian.AppendUint32(p, h.change)
	p = append(p, 1, 0)
	p = binary.LittleEndian.AppendUint16(p, uint16(h.pageSize&0xff00|h.pageSize>>16))
	p = binary.LittleEndian.AppendUint32(p, h.frames)
	p = binary.LittleEndian.AppendUint32(p, h.pages)
	p = binary.LittleEndian.AppendUint32(p, h.sum[0])
	p = binary.LittleEndian.AppendUint32(p, h.sum[1])
	p = binary.BigEndian.AppendUint32(p, h.salt[0])
	p = binary.BigEndian.AppendUint32(p, h.salt[1])
	sum := walformat.Sum{}.Add(p[begin:], false)
	p = binary.LittleEndian.AppendUint32(p, sum[0])
	return binary.LittleEndian.AppendUint32(p, sum[1])
}

// pageSum returns the checksum of a page with its number. The sum of a database is the XOR of
// the checksums of its pages. The last steps are not linear, so that exchanged pages change
// the XOR.
func pageSum(pgno uint32, page []byte) uint64 {
	x := uint64(crc32.Checksum(page, castagnoli))<<32 | uint64(crc32.ChecksumIEEE(page))
	x += uint64(pgno) * 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// pageFile reads and writes the pages of a database without SQLite's pager, under SQLite's
// locks. It must not be used concurrently.
type pageFile struct {
	keeper       *sqlite3.Conn // keeps the WAL's index alive, recovers and checkpoints
	db, wal, shm *os.File
	index        []byte // the mapped WAL's index, from its beginning; see mapIndex
	frames       []byte // the frames of the last write, to be reused
	path         string
	disk         *disk
}

// openPages opens a database by name, through the VFS of the node.
func openPages(uri, path string, d *disk) (*pageFile, error) {
	c, err := sqlite3.OpenFlags(uri, sqlite3.OPEN_READWRITE|sqlite3.OPEN_URI)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f := &pageFile{keeper: c, path: path, disk: d}
	if err := f.open(path); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.close())
	}
	return f, nil
}

func (f *pageFile) open(path string) (err error) {
	// Another connection may be recovering the WAL.
	if err := f.keeper.BusyTimeout(10 * time.Second); err != nil {
		return err
	}
	if err := f.keeper.Exec("PRAGMA synchronous=NORMAL; PRAGMA wal_autocheckpoint=0"); err != nil {
		return err
	}
	if err := f.recover(); err != nil {
		return err
	}
	if err := f.keeper.BusyTimeout(0); err != nil {
		return err
	}
	for _, file := range []struct {
		to     **os.File
		suffix string
	}{{&f.db, ""}, {&f.wal, "-wal"}, {&f.shm, "-shm"}} {
		if *file.to, err = os.OpenFile(path+file.suffix, os.O_RDWR, 0); err != nil {
			return err
		}
	}
	return nil
}

// recover makes SQLite read the WAL and create its index if there is none.
func (f *pageFile) recover() error {
	return f.keeper.Exec("BEGIN; SELECT count(*) FROM sqlite_schema; COMMIT")
}

func (f *pageFile) close() error {
	errs := []error{unmap(f.index)}
	f.index = nil
	for _, file := range []*os.File{f.db, f.wal, f.shm} {
		if file != nil {
			errs = append(errs, file.Close())
		}
	}
	return errors.Join(append(errs, f.keeper.Close())...)
}

// header reads the header of the index, and how many frames are in the database.
func (f *pageFile) header() (h indexHeader, backfilled uint32, err error) {
	var p [indexPages]byte
	for try := 0; ; try++ {
		if err = f.mapIndex(indexBlock); err == nil {
			for i := 0; i < len(p); i += 4 {
				binary.NativeEndian.PutUint32(p[i:], atomic.LoadUint32(f.word(i)))
			}
			if err = h.parse(p[:]); err == nil {
				return h, binary.LittleEndian.Uint32(p[indexInfo:]), nil
			}
		}
		if !errors.Is(err, errIndex) || try == 100 {
			return h, 0, err
		}
		// The header is being written, or must be created again.
		if err := f.recover(); err != nil {
			return h, 0, err
		}
		time.Sleep(time.Duration(try) * time.Millisecond)
	}
}

// mapIndex maps at least the first size bytes of the WAL's index, so that entering a frame and
// searching its hash table take no system calls. It returns errIndex if the file is smaller.
// The file does not shrink while the keeper is open: SQLite truncates it only when no connection
// uses it.
func (f *pageFile) mapIndex(size int) error {
	if len(f.index) >= size {
		return nil
	}
	info, err := f.shm.Stat()
	if err != nil {
		return err
	}
	if info.Size() < int64(size) {
		return errIndex
	}
	if err := unmap(f.index); err != nil {
		return err
	}
	f.index, err = mapShared(f.shm, size)
	return err
}

// word returns a word of the mapped index for atomic use: other connections read and write it.
func (f *pageFile) word(at int) *uint32 { return (*uint32)(unsafe.Pointer(&f.index[at : at+4][0])) }

// committed returns the state of a WAL from its index. Readers call it without a lock, so another
// connection may be writing the header.
func committed(shm *os.File) (h indexHeader, err error) {
	var p [2 * indexHeaderSize]byte
	for try := 0; ; try++ {
		if _, err := shm.ReadAt(p[:], 0); err != nil {
			return h, err
		}
		if err := h.parse(p[:]); !errors.Is(err, errIndex) || try == 100 {
			return h, err
		}
		time.Sleep(time.Duration(try) * 10 * time.Microsecond)
	}
}

// end returns where the committed frames end in the WAL.
func (h *indexHeader) end() int64 {
	return walHeaderSize + int64(h.frames)*(frameHeaderSize+int64(h.pageSize))
}

// place returns the place of a frame in the index: the offset of its block, the offset of the
// block's page numbers, and the frame's number within the block, from 0.
func place(frame uint32) (at, pages int64, n uint32) {
	if frame <= framesInFirst {
		return 0, indexPages, frame - 1
	}
	frame -= framesInFirst + 1
	at = int64(frame/framesInBlock+1) * indexBlock
	return at, at, frame % framesInBlock
}

// block returns the page numbers and the hash table of a frame's block, and the frame's number
// within the block, from 0. It returns errIndex if the index does not have the block.
func (f *pageFile) block(frame uint32) (numbers, hash []byte, n uint32, err error) {
	at, pages, n := place(frame)
	if err := f.mapIndex(int(at) + indexBlock); err != nil {
		return nil, nil, n, err
	}
	return f.index[pages : at+indexHash], f.index[at+indexHash : at+indexBlock], n, nil
}

// slots yields the slots of a hash table in the order in which a page is searched.
func slots(pgno uint32) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		slot := pgno * 383 % indexSlots
		for range indexSlots {
			if !yield(slot) {
				return
			}
			slot = (slot + 1) % indexSlots
		}
	}
}

// write appends a transaction to the WAL and makes it visible. The caller holds the
// writer's lock.
func (f *pageFile) write(t *txn) error {
	h, _, err := f.header()
	if err != nil {
		return err
	}
	if h.frames == 0 {
		if err := f.writeHeader(&h, t.pageSize); err != nil {
			return err
		}
	}
	if h.pageSize != t.pageSize {
		return fmt.Errorf("the transaction has pages of %d bytes, and %s-wal of %d: the WAL is of another database", t.pageSize, f.path, h.pageSize)
	}
	frame := frameHeaderSize + int(h.pageSize)
	buf := slices.Grow(f.frames[:0], len(t.pgnos)*frame)
	for i, pgno := range t.pgnos {
		size := uint32(0)
		if i == len(t.pgnos)-1 {
			size = t.pages
		}
		begin := len(buf)
		buf = binary.BigEndian.AppendUint32(buf, pgno)
		buf = binary.BigEndian.AppendUint32(buf, size)
		page := t.content[i]
		h.sum = h.sum.Add(buf[begin:], false).Add(page, false)
		buf = binary.BigEndian.AppendUint32(buf, h.salt[0])
		buf = binary.BigEndian.AppendUint32(buf, h.salt[1])
		buf = binary.BigEndian.AppendUint32(buf, h.sum[0])
		buf = binary.BigEndian.AppendUint32(buf, h.sum[1])
		buf = append(buf, page...)
	}
	if f.frames = buf; cap(buf) > keptFrames {
		f.frames = nil
	}
	if _, err := f.wal.WriteAt(buf, walHeaderSize+int64(h.frames)*int64(frame)); err != nil {
		return err
	}
	for _, pgno := range t.pgnos {
		h.frames++
		if err := f.enter(h.frames, pgno); err != nil {
			return err
		}
	}
	h.change++
	h.pages = t.pages
	f.publish(&h)
	return nil
}

// read reads a page of the newest transaction. The caller holds the writer's lock.
func (f *pageFile) read(pgno uint32, p []byte) error {
	h, _, err := f.header()
	if err != nil {
		return err
	}
	frame := uint32(0)
	for last := h.frames; last > 0 && frame == 0; {
		numbers, hash, n, err := f.block(last)
		if err != nil {
			return err
		}
		for slot := range slots(pgno) {
			k := uint32(binary.LittleEndian.Uint16(hash[2*slot:]))
			if k == 0 {
				break
			}
			if k <= n+1 && binary.LittleEndian.Uint32(numbers[4*(k-1):]) == pgno {
				frame = max(frame, last-n+k-1)
			}
		}
		last -= n + 1
	}
	return f.readPage(pgno, frame, p)
}

// keptFrames is the largest buffer that a pageFile keeps for its next write.
const keptFrames = 64 << 10

// writeHeader restarts the WAL. The database has all frames that were in it. The header is
// synced, as SQLite does it: otherwise a power cut might leave the old header and some of the
// old frames, which would hide newer pages of the database.
func (f *pageFile) writeHeader(h *indexHeader, pageSize uint32) error {
	h.pageSize = pageSize
	h.salt = [2]uint32{h.salt[0] + 1, rand.Uint32()}
	var p []byte
	p, h.sum = walformat.AppendHeader(nil, pageSize, 0, h.salt)
	if _, err := f.wal.WriteAt(p, 0); err != nil {
		return err
	}
	return f.disk.sync(f.path+"-wal", f.wal.Sync)
}

// enter enters a frame into the hash table of its block.
func (f *pageFile) enter(frame, pgno uint32) error {
	numbers, hash, n, err := f.block(frame)
	if errors.Is(err, errIndex) {
		// The zeros are written, so that no write to the mapped file needs room on the disk.
		at, pages, _ := place(frame)
		if _, err = f.shm.WriteAt(make([]byte, at+indexBlock-pages), pages); err == nil {
			numbers, hash, n, err = f.block(frame)
		}
	}
	if err != nil {
		return err
	}
	if n == 0 { // the block is new; its content is outdated
		clear(hash)
		clear(numbers)
	}
	if binary.LittleEndian.Uint32(numbers[4*n:]) != 0 {
		clean(numbers, hash, n)
	}
	for slot := range slots(pgno) {
		if binary.LittleEndian.Uint16(hash[2*slot:]) == 0 {
			binary.LittleEndian.PutUint32(numbers[4*n:], pgno)
			binary.LittleEndian.PutUint16(hash[2*slot:], uint16(n+1))
			return nil
		}
	}
	return errIndex
}

// clean removes the frames from n on from a block: they belong to a transaction that was not
// committed. Readers may search the hash table meanwhile. They ignore frames that the header
// does not have.
func clean(numbers, hash []byte, n uint32) {
	for i := 0; i < len(hash); i += 2 {
		if uint32(binary.LittleEndian.Uint16(hash[i:])) > n {
			binary.LittleEndian.PutUint16(hash[i:], 0)
		}
	}
	clear(numbers[4*n:])
}

// publish writes the header's copies, the second one first: readers compare them. The atomic
// writes keep the order, also after the plain writes of the frames' numbers.
func (f *pageFile) publish(h *indexHeader) {
	var p [indexHeaderSize]byte
	h.append(p[:0])
	for _, at := range []int{indexHeaderSize, 0} {
		for i := 0; i < len(p); i += 4 {
			atomic.StoreUint32(f.word(at+i), binary.NativeEndian.Uint32(p[i:]))
		}
	}
}

// image is the database in a read transaction of the keeper.
type image struct {
	f        *pageFile
	pageSize uint32
	pages    uint32
	frames   map[uint32]uint32 // by page number
}

// image begins to read. SQLite keeps the pages unchanged until done is called. No
// transaction may be written while image runs.
func (f *pageFile) image() (*image, error) {
	if err := f.keeper.Exec("BEGIN; SELECT count(*) FROM sqlite_schema"); err != nil {
		return nil, err
	}
	m, err := f.mapPages()
	if err != nil {
		return nil, errors.Join(err, f.keeper.Exec("ROLLBACK"))
	}
	return m, nil
}

func (m *image) done() error { return m.f.keeper.Exec("ROLLBACK") }

func (f *pageFile) mapPages() (*image, error) {
	h, backfilled, err := f.header()
	if err != nil {
		return nil, err
	}
	var first [100]byte
	if _, err := f.db.ReadAt(first[:], 0); err != nil {
		return nil, fmt.Errorf("%s is no database: its header of 100 bytes cannot be read: %w", f.path, err)
	}
	size := uint32(binary.BigEndian.Uint16(first[16:]))
	size = size&0xfe00 | size&1<<16
	if size < 512 {
		return nil, fmt.Errorf("%s is no database: its header has pages of %d bytes, which is no power of two from 512 to 65536", f.path, size)
	}
	info, err := f.db.Stat()
	if err != nil {
		return nil, err
	}
	m := &image{f: f, pageSize: size, pages: uint32(info.Size() / int64(size)), frames: make(map[uint32]uint32)}
	if h.frames == 0 {
		return m, nil
	}
	if h.pageSize != size {
		return nil, fmt.Errorf("%s-wal has pages of %d bytes, and the database of %d: the WAL is of another database", f.path, h.pageSize, size)
	}
	m.pages = h.pages
	for frame := uint32(1); frame <= h.frames; {
		numbers, _, n, err := f.block(frame)
		if err != nil {
			return nil, err
		}
		for numbers = numbers[4*n:]; len(numbers) > 0 && frame <= h.frames; numbers = numbers[4:] {
			if frame > backfilled {
				m.frames[binary.LittleEndian.Uint32(numbers)] = frame
			}
			frame++
		}
	}
	return m, nil
}

// read reads a page, numbered from 1.
func (m *image) read(pgno uint32, p []byte) error {
	return m.f.readPage(pgno, m.frames[pgno], p[:m.pageSize])
}

// readPage reads a page from a frame, or from the database if the frame is 0.
func (f *pageFile) readPage(pgno, frame uint32, p []byte) error {
	size := int64(len(p))
	file, at := f.db, int64(pgno-1)*size
	if at == lockBytePage/size*size {
		clear(p) // SQLite never uses this page
		return nil
	}
	if frame > 0 {
		file, at = f.wal, walHeaderSize+int64(frame-1)*(frameHeaderSize+size)+frameHeaderSize
	}
	if n, err := file.ReadAt(p, at); err != nil {
		if err == io.EOF && file == f.db {
			clear(p[n:]) // a page that was added and never written
			return nil
		}
		return fmt.Errorf("page %d: %w", pgno, err)
	}
	return nil
}

// lockBytePage is where SQLite locks the file.
const lockBytePage = 1 << 30

// sums returns the checksums of all pages, and their XOR.
func (m *image) sums() (sums []uint64, total uint64, err error) {
	sums = make([]uint64, m.pages)
	p := make([]byte, m.pageSize)
	for i := range sums {
		if err := m.read(uint32(i)+1, p); err != nil {
			return nil, 0, err
		}
		sums[i] = pageSum(uint32(i)+1, p)
		total ^= sums[i]
	}
	return sums, total, nil
}

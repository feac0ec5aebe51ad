// SPDX-License-Identifier: MIT

package ufile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/reactor"
)

// Mapped is a file that is mapped into memory for reading. A page fault of memory that is not in
// the page cache stops a P of Go's scheduler until the disk has answered. [Mapped.Slice] avoids
// such faults: it reads the missing pages through a ring, as [File.ReadAt] does, before it returns
// the memory. Writes to the file are visible in the memory.
//
// All methods may be called concurrently, except that Close must not be called while memory of the
// map is in use. Close the Mapped before its File.
type Mapped struct {
	f      *File
	data   []byte       // one page more than the file has
	valid  atomic.Int64 // bytes that the file had when it was last asked, -1 after Close
	size   int64        // bytes that it had at first
	knows  bool         // mincore(2) says what is resident
	shift  int          // log2 of the page size
	chunks []chunk
	epoch  atomic.Uint32
	last   atomic.Int64 // the page that was read last

	closing sync.Mutex
	timer   *time.Timer // advances the epoch while the map is in use
	armed   atomic.Bool // the timer runs
	used    atomic.Bool // a chunk was used for the first time in this epoch
}

// chunk is what is known about 64 pages: a bit is set if its page was resident in the epoch.
type chunk struct {
	epoch atomic.Uint32
	used  atomic.Uint32 // the epoch in which it was last used without asking the kernel
	bits  atomic.Uint64
}

const (
	chunkBits  = 6
	chunkPages = 1 << chunkBits
	// epochTime is how long a page is taken to be resident. The kernel may evict it earlier. Then
	// the access takes a page fault.
	epochTime = time.Second
	// loadMax is how many bytes one operation reads into the page cache.
	loadMax = 64 << 10
)

var (
	errTruncated   = fmt.Errorf("the file has been truncated since it was mapped: %w", io.ErrUnexpectedEOF)
	errNotRegular  = fmt.Errorf("only regular files can be mapped: %w", errors.ErrUnsupported)
	errTooLarge    = fmt.Errorf("larger than the address space: %w", syscall.EFBIG)
	errOutsideFile = fmt.Errorf("outside of the mapped file: %w", io.EOF)
)

// loadBuffers are buffers of loadMax bytes. ReadFile and ReadFiles read into them. For Mapped, data
// passes through them into the page cache; nothing reads it from the buffers.
var loadBuffers = sync.Pool{New: func() any { return (*[loadMax]byte)(AlignedBuffer(loadMax)) }}

// Map maps the whole file, with the size that it has now. The file must be open for reading, and
// must be a regular file. On Windows the error wraps errors.ErrUnsupported. Without a ring,
// and for files opened with O_DIRECT, Slice works too: it uses plain system calls or page faults.
func (f *File) Map() (*Mapped, error) {
	info, err := f.std().Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, f.pathError("map", errNotRegular)
	}
	page := int64(os.Getpagesize())
	pages := (info.Size() + page - 1) / page
	length := (pages + 1) * page
	if int64(int(length)) != length {
		return nil, f.pathError("map", errTooLarge)
	}
	m := &Mapped{f: f, size: info.Size(), chunks: make([]chunk, (pages+chunkPages-1)/chunkPages)}
	err = f.control("map", func(fd int) (err error) {
		m.data, err = sys.MapFile(fd, int(length))
		return err
	})
	if errors.Is(err, syscall.ENOSYS) {
		err = f.pathError("map", errors.ErrUnsupported)
	}
	if err != nil {
		return nil, err
	}
	for 1<<m.shift < page {
		m.shift++
	}
	// The page behind the end of the file is not resident. The kernel says so only to a process
	// that may know it.
	var behind [1]byte
	m.knows = sys.Resident(m.data[length-page:], behind[:]) == nil && behind[0]&1 == 0
	m.valid.Store(m.size)
	m.epoch.Store(1)
	m.last.Store(-1)
	m.timer = time.AfterFunc(epochTime, m.tick)
	m.timer.Stop()
	return m, nil
}

// Len returns the size of the file in bytes when it was mapped.
func (m *Mapped) Len() int64 { return m.size }

// Slice returns n bytes of the file from the offset off on. All of its pages are resident when
// Slice returns. The memory is read-only: a write to it ends the program. It is valid until Close.
//
// Up to a second after the kernel has evicted a page, Slice may take it to be resident; then it
// takes a page fault. If the file was truncated, the error of Slice wraps io.ErrUnexpectedEOF
// (within a page of the end the zeros that replace the data are noticed after up to a second).
// A range outside of the file gives an error that wraps io.EOF. Memory that Slice has returned
// before the truncation cannot be accessed: see [Mapped.Guard].
func (m *Mapped) Slice(off int64, n int) ([]byte, error) {
	if off < 0 || n < 0 || off > m.valid.Load()-int64(n) {
		return nil, m.outside(off, int64(n))
	}
	b := m.data[off : off+int64(n) : off+int64(n)]
	if n == 0 {
		return b, nil
	}
	first, last := int(off>>m.shift), int((off+int64(n)-1)>>m.shift)
	if !m.resident(first, last) {
		if err := m.load(first, last); err != nil {
			return nil, err
		}
	}
	if err := m.touch(off, n); err != nil {
		return nil, err
	}
	if off > m.valid.Load()-int64(n) { // closed meanwhile
		return nil, m.outside(off, int64(n))
	}
	return b, nil
}

// Extent is a part of a file, in bytes.
type Extent struct{ Off, Len int64 }

// Prefetch starts to read parts of the file into the page cache and does not wait for them. A later
// Slice waits only for what has not arrived. Prefetch skips pages that are known to be
// resident. It makes a system call for each extent, and gives up the P meanwhile.
func (m *Mapped) Prefetch(extents ...Extent) error {
	for _, e := range extents {
		if e.Off < 0 || e.Len < 0 || e.Off > m.valid.Load()-e.Len {
			return m.outside(e.Off, e.Len)
		}
		if e.Len == 0 || m.resident(int(e.Off>>m.shift), int((e.Off+e.Len-1)>>m.shift)) {
			continue
		}
		err := m.f.control("prefetch", func(fd int) error { return sys.WillNeed(fd, e.Off, e.Len) })
		if err != nil && !errors.Is(err, syscall.ENOSYS) {
			return err
		}
	}
	return nil
}

// Guard calls a function that accesses memory of the map, and returns its error. If the memory
// cannot be accessed because the file was truncated or cannot be read, the function ends there, as
// by a panic, and Guard returns an error. Without Guard the program ends. Guard is for files that
// other programs may truncate. It has no effect on goroutines that the function starts.
func (m *Mapped) Guard(fn func() error) (err error) {
	done, old := false, debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if !done {
			err = m.faultError(recover())
		}
	}()
	err = fn()
	done = true
	return err
}

// Close frees the address space. No memory of the map may be in use. The file stays open. Later
// calls of the methods return an error that wraps os.ErrClosed.
func (m *Mapped) Close() error {
	m.closing.Lock()
	defer m.closing.Unlock()
	if m.valid.Swap(-1) < 0 {
		return m.f.pathError("unmap", os.ErrClosed)
	}
	m.timer.Stop()
	if err := sys.UnmapFile(m.data); err != nil {
		return m.f.pathError("unmap", err)
	}
	return nil
}

// outside is the error of a range that is not valid.
func (m *Mapped) outside(off, n int64) error {
	switch {
	case m.valid.Load() < 0:
		return m.f.pathError("map", os.ErrClosed)
	case off < 0 || n < 0:
		return m.f.pathError("map", errNegative)
	case off <= m.size-n:
		return m.f.pathError("map", errTruncated)
	}
	return m.f.pathError("map", errOutsideFile)
}

// mask has the bits of the pages from first to last in chunk i.
func mask(i, first, last int) uint64 {
	low, high := max(first-i<<chunkBits, 0), min(last-i<<chunkBits, chunkPages-1)
	return ^uint64(0) << low & (^uint64(0) >> (chunkPages - 1 - high))
}

// resident reports whether pages are known to be resident.
func (m *Mapped) resident(first, last int) bool {
	now := m.epoch.Load()
	if first == last {
		c := &m.chunks[first>>chunkBits]
		return c.epoch.Load() == now && c.bits.Load()>>(first&(chunkPages-1))&1 != 0
	}
	for i := first >> chunkBits; i <= last>>chunkBits; i++ {
		c, want := &m.chunks[i], mask(i, first, last)
		if c.epoch.Load() != now || c.bits.Load()&want != want {
			return false
		}
	}
	return true
}

// load reads the missing pages into the page cache.
func (m *Mapped) load(first, last int) error {
	if !m.f.lock.Acquire() {
		return m.f.pathError("map", os.ErrClosed)
	}
	defer m.f.lock.Release()
	for page := first; page <= last; {
		i := page >> chunkBits
		missing := mask(i, page, last)
		if first != last || !m.unasked(i) {
			missing &^= m.current(i)
		}
		if missing == 0 {
			page = (i + 1) << chunkBits
			continue
		}
		for missing&(1<<(page&(chunkPages-1))) == 0 {
			page++
		}
		end := page + 1
		for end&(chunkPages-1) != 0 && missing&(1<<(end&(chunkPages-1))) != 0 && (end-page)<<m.shift < loadMax {
			end++
		}
		read, err := m.read(page, end)
		if err != nil {
			return err
		}
		m.chunks[i].bits.Or(mask(i, page, page+read-1))
		page += read
	}
	return nil
}

// unasked reports whether a single page is to be read without asking the kernel which pages of its
// chunk are resident. That is so for the first page in an epoch of a chunk of which few pages were
// resident: the question, about 64 pages, takes longer than a needless read.
func (m *Mapped) unasked(i int) bool {
	c, now := &m.chunks[i], m.epoch.Load()
	few := m.knows && bits.OnesCount64(c.bits.Load()) < chunkPages/2
	if !few || c.epoch.Load() == now || c.used.Swap(now) == now {
		return false
	}
	m.keepTime()
	return true
}

// current returns which pages of a chunk are resident. In a new epoch it asks the kernel.
func (m *Mapped) current(i int) uint64 {
	c, now := &m.chunks[i], m.epoch.Load()
	if c.epoch.Load() == now {
		return c.bits.Load()
	}
	var resident uint64
	if m.knows {
		var pages [chunkPages]byte
		begin := i << chunkBits << m.shift
		part := m.data[begin:min(begin+chunkPages<<m.shift, len(m.data)-1<<m.shift)]
		if sys.Resident(part, pages[:]) == nil {
			for j, p := range pages {
				resident |= uint64(p&1) << j
			}
		}
	}
	c.bits.Store(resident)
	c.epoch.Store(now)
	m.keepTime()
	return resident
}

// keepTime notes that the map is in use: epochs follow each other.
func (m *Mapped) keepTime() {
	m.used.Store(true)
	if m.armed.CompareAndSwap(false, true) {
		m.findSize()
		m.restart()
	}
}

// read reads pages from first to before end into the page cache. It returns how many it has read.
func (m *Mapped) read(first, end int) (int, error) {
	off := int64(first) << m.shift
	p := make([]byte, 1) // the kernel reads the whole page, and copies one byte
	var whole []byte
	if end > first+1 {
		whole = loadBuffers.Get().(*[loadMax]byte)[:]
		p = whole[:min((end-first)<<m.shift, loadMax)]
	}
	next := m.last.Swap(int64(end-1)) + 1
	n, err := m.readInto(p, off, int64(first) != next && end == first+1)
	if whole != nil && !errors.Is(err, reactor.ErrTaken) { // otherwise the kernel may still write to it
		loadBuffers.Put((*[loadMax]byte)(whole))
	}
	switch {
	case err != nil:
		return 0, err
	case n == 0:
		m.findSize()
		return 0, m.f.pathError("map", errTruncated)
	}
	return (n-1)>>m.shift + 1, nil
}

// readInto reads once. If nothing else is in flight, touching a single page is faster, except for
// one that follows the last: a plain call reads ahead.
func (m *Mapped) readInto(p []byte, off int64, mayTouch bool) (int, error) {
	f := m.f
	if f.direct { // a read would not use the page cache
		return len(p), m.touch(off, len(p))
	}
	if !f.accelerated() {
		return f.plainCall(reading, p, off)
	}
	if !m.knows && f.askCache() {
		if n, _ := f.readCached(p, off); n > 0 {
			return n, nil
		}
	}
	r, chosen, err := f.choose(context.Background(), false)
	switch {
	case err != nil:
		return 0, f.pathError("map", err)
	case r != nil:
		return f.throughRing(context.Background(), r, reading, p, off)
	}
	defer chosen.done()
	if mayTouch && chosen != (turn{}) {
		f.plain.Add(1)
		return 1, m.touch(off, 1)
	}
	return f.plainCall(reading, p, off)
}

// touch accesses the pages of n bytes, so that the memory can be accessed without a fault: the first
// one at off, where the caller will find the cache line. The error is for pages that the file no
// longer has, or that cannot be read.
func (m *Mapped) touch(off int64, n int) (err error) {
	done, old := false, debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if !done { // recover takes longer than this question
			err = m.faultError(recover())
		}
	}()
	for at, end := off, off+int64(n); at < end; at = (at>>m.shift + 1) << m.shift {
		runtime.KeepAlive(m.data[at])
	}
	done = true
	return nil
}

// faultError returns the error for the panic of a fault. Other panics continue.
func (m *Mapped) faultError(p any) error {
	if p == nil {
		return nil // runtime.Goexit
	}
	fault, ok := p.(interface{ Addr() uintptr })
	if !ok || !sys.Contains(m.data, fault.Addr()) {
		panic(p)
	}
	if size := m.findSize(); size < m.size {
		return m.outside(0, m.size)
	}
	return m.f.pathError("map", syscall.EIO)
}

// findSize asks for the size of the file. What was truncated stays invalid.
func (m *Mapped) findSize() int64 {
	info, err := m.f.Stat()
	for err == nil {
		was := m.valid.Load()
		if was <= info.Size() || m.valid.CompareAndSwap(was, info.Size()) {
			break
		}
	}
	return m.valid.Load()
}

// tick begins an epoch. If no chunk was used in the last one, the map is not in use.
func (m *Mapped) tick() {
	m.epoch.Add(1)
	m.findSize()
	if m.used.Swap(false) {
		m.restart()
		return
	}
	m.armed.Store(false)
	if m.used.Load() && m.armed.CompareAndSwap(false, true) { // meanwhile
		m.restart()
	}
}

// restart starts the timer, unless the map is closed.
func (m *Mapped) restart() {
	m.closing.Lock()
	defer m.closing.Unlock()
	if m.valid.Load() >= 0 {
		m.timer.Reset(epochTime)
	}
}

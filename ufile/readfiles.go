// SPDX-License-Identifier: MIT

package ufile

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/reactor"
)

// FileData is a file that [System.ReadFiles] has read.
type FileData struct {
	Index int    // of Name in the names
	Name  string // as it was passed
	// Data is the whole content. It is valid until the loop continues or ends: copy what is to be
	// kept. With an error it is what was read before.
	Data []byte
	Err  error // as from os.ReadFile

	whole *[loadMax]byte // the buffer
	large int64          // bytes of the budget for large files
}

// ReadFilesOptions bound what [System.ReadFiles] uses. The zero value is recommended.
type ReadFilesOptions struct {
	// Files is how many files are open at a time, and how many goroutines read them at most; 0
	// means 128. More hide more of a disk's latency. With fewer than 32 there are no rings.
	Files int
	// Memory bounds the buffers of files larger than 64 KiB in bytes; 0 means 64 MiB. A single
	// larger file is read when no other is. Smaller files have buffers of 64 KiB, twice as many
	// as Files.
	Memory int64
}

const (
	readFilesDefault = 128
	readFilesMemory  = 64 << 20
)

// ReadFiles reads whole files, each once, and yields them in the order in which they
// arrive; see [System.ReadFiles].
func ReadFiles(ctx context.Context, names []string, o ReadFilesOptions) iter.Seq[FileData] {
	return defaultSystem().ReadFiles(ctx, names, o)
}

// ReadFiles reads whole files, each once, and yields them in the order in which they
// arrive. With 64 names or more, ModeAuto and without Restrict, up to four rings open, read and
// close cached files of less than 64 KiB, 32 at a time. Other cached files are read by plain system
// calls, and data that is not cached through the rings of the System. The error of one file does
// not end the loop. When ctx ends, the files that were not read are yielded with an
// error that wraps context.Cause(ctx), so that the loop sees every name once. If the loop is left
// early, the operations in flight end first. An open that waits for the server of a file system, as
// of FUSE or NFS, may hold up to 31 other files until then. The loop may run again, and reads again.
//
// A named pipe is read until its writers have closed it. Where a ring has opened it, the end of ctx
// or of the loop ends that; otherwise a goroutine waits in open(2) until there is a writer.
func (s *System) ReadFiles(ctx context.Context, names []string, o ReadFilesOptions) iter.Seq[FileData] {
	return func(yield func(FileData) bool) {
		r, cancel := s.newFilesReader(ctx, names, o)
		defer func() { // also after a panic of the loop
			cancel()
			r.stop()
		}()
		for {
			d, ok := r.result()
			if !ok {
				return
			}
			more := yield(d)
			r.release(d)
			if !more {
				return
			}
		}
	}
}

// openFile is a file that is to be read.
type openFile struct {
	index int // of the names
	fd    int // -1 if it is not open
	buf   *[loadMax]byte
	n     int // bytes in buf that were read
}

// filesBatch is how many files a ring reads at a time.
const filesBatch = 32

// filesReader is one loop over ReadFiles. Its goroutines take names and append results. Some of them
// have a ring; they pass files that are not read at once on to the others, which read by plain calls.
type filesReader struct {
	s     *System
	ctx   context.Context
	names []string
	files int // how many may be open

	mu      sync.Mutex
	room    sync.Cond  // of goroutines that wait for a name
	arrived sync.Cond  // of the loop
	next    int        // of the names
	open    int        // files that are open, or will be
	held    int        // buffers in use, at most twice files
	running int        // goroutines
	takers  int        // those that will look for another file
	rings   int        // that may be opened; one is, until its first batch was cached
	passed  []openFile // by rings
	results []FileData
	stopped bool // the loop has ended

	// plain: files are not cached, or there are no rings: all goroutines take names. Rings are tried
	// again when the names from again on are due and the last hot files were cached. late batches take
	// long.
	plain bool
	late  int
	hot   int
	again int
	pause int // names without rings, the next time

	budget struct { // of large files
		cond      sync.Cond
		free, all int64
	}

	// Of the loop:
	batch []FileData // results of which the first at were yielded
	at    int
	freed int // buffers that it has released; held counts them still
}

const (
	ringNames   = 64 // from so many names on there are rings
	mostRings   = 4
	firstBatch  = 16  // files of the first batch, which shows whether files are cached
	firstPause  = 512 // names that are read without rings when most of a batch was not cached
	pauseMisses = 8   // such files in a batch
	hotFiles    = 64  // cached files in succession that end the pause
	bufferShare = 4   // the loop gives buffers back when it has a fourth of Options.Files

	batchWait = 10 * time.Millisecond // after which rings pause; a batch usually takes 0.2 ms
)

func (s *System) newFilesReader(ctx context.Context, names []string, o ReadFilesOptions) (*filesReader, context.CancelFunc) {
	if o.Files <= 0 {
		o.Files = readFilesDefault
	}
	if o.Memory <= 0 {
		o.Memory = readFilesMemory
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &filesReader{s: s, ctx: ctx, names: names, files: min(o.Files, len(names)), pause: firstPause}
	r.room.L, r.arrived.L, r.budget.cond.L = &r.mu, &r.mu, &r.mu
	r.budget.free, r.budget.all = o.Memory, o.Memory
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(names) >= ringNames && s.canReadFiles() {
		r.rings = min(mostRings, r.files/filesBatch)
	}
	if r.rings > 0 {
		r.goWork(new(filesRing))
	} else {
		r.again = len(names)
		r.goPlain()
	}
	return r, cancel
}

// goWork starts a goroutine. The caller holds mu.
func (r *filesReader) goWork(ring *filesRing) {
	r.running++
	r.takers++
	go func() {
		r.work(ring)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.running--
		if r.running == 0 {
			r.arrived.Signal()
		}
	}()
}

// goPlain makes all goroutines take names. The caller holds mu.
func (r *filesReader) goPlain() {
	r.plain, r.hot = true, 0
	for r.takers < min(r.files, len(r.names)-r.next) {
		r.goWork(nil)
	}
	r.room.Broadcast()
}

// goPause is goPlain for some names. The caller holds mu.
func (r *filesReader) goPause() {
	r.again = r.next + r.pause
	r.pause *= 2
	r.goPlain()
}

// isLate is called when a batch takes long. The open of a file waits for its server, such as one of FUSE or
// NFS, also if the name is cached: in a ring one such file waits after the other, and with plain calls
// at the same time. Until such a server answers, its file holds the others of the batch.
func (r *filesReader) isLate() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.late++; !r.plain && r.namesLeft() {
		r.goPause()
	}
}

// result returns the next result, false after the last.
func (r *filesReader) result() (FileData, bool) {
	if r.at == len(r.batch) {
		clear(r.batch)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.giveBack()
		for len(r.results) == 0 && r.running > 0 {
			r.arrived.Wait()
		}
		r.batch, r.results, r.at = r.results, r.batch[:0], 0
		if len(r.batch) == 0 {
			return FileData{}, false
		}
	}
	r.at++
	return r.batch[r.at-1], true
}

// release takes back what a result held.
func (r *filesReader) release(d FileData) {
	if d.whole != nil {
		loadBuffers.Put(d.whole)
	}
	r.freed++
	if d.large == 0 && r.freed*bufferShare < r.files {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.giveBack()
	if d.large > 0 {
		r.budget.free += d.large
		r.budget.cond.Broadcast()
	}
}

// giveBack lets other files use the buffers that the loop has released. The caller holds mu.
func (r *filesReader) giveBack() {
	r.held -= r.freed
	for ; r.freed > 0; r.freed-- {
		r.room.Signal()
	}
}

// stop waits for the goroutines and takes back what they hold.
func (r *filesReader) stop() {
	r.mu.Lock()
	r.stopped = true
	r.room.Broadcast()
	r.budget.cond.Broadcast()
	r.mu.Unlock()
	for d, ok := r.result(); ok; d, ok = r.result() {
		r.release(d)
	}
}

// work reads files until there are no more.
func (r *filesReader) work(ring *filesRing) {
	l := r.s.newLoader()
	defer l.done()
	if ring != nil {
		defer ring.close()
		if ring.open() != nil {
			r.ringFailed()
			ring = nil
		}
	}
	for {
		if ring != nil && r.takeBatch(ring) {
			late := time.AfterFunc(batchWait, r.isLate)
			l.f.cached.Add(ring.read())
			r.finishBatch(ring, !late.Stop())
			if ring.err != nil {
				r.ringFailed()
				ring.close()
				ring = nil
			}
			continue
		}
		p, ok, end := r.take(ring != nil)
		switch {
		case ok:
			d := r.read(l, p)
			r.finish(d, !l.missed)
		case end:
			return
		}
	}
}

// take returns a file to read: one that a ring has passed on or, without rings, of the next name.
// If there is none now, end reports whether the goroutine is to end: one with a ring does so when no
// names are left.
func (r *filesReader) take(ring bool) (f openFile, ok, end bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		more := r.namesLeft()
		switch n := len(r.passed); {
		case n > 0:
			f = r.passed[n-1]
			r.passed = r.passed[:n-1]
			return f, true, false
		case more && r.plain && r.hasRoom() > 0:
			return openFile{index: r.takeNames(1), fd: -1}, true, false
		case more && r.plain:
			r.room.Wait()
		case more && ring:
			return f, false, false
		default:
			r.takers--      // in the section in which nothing was passed on: what is passed on later needs another one
			r.room.Signal() // what woke this goroutine was for one with a ring
			return f, false, true
		}
	}
}

// takeBatch takes names for a ring. It returns false if files are read without rings, or if there are
// no more names.
func (r *filesReader) takeBatch(ring *filesRing) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		switch {
		case !r.namesLeft():
			return false
		case r.ctx.Err() != nil && !r.plain:
			r.again = len(r.names)
			r.goPlain()
			fallthrough
		case r.plain:
			return false
		}
		n := min(r.hasRoom(), ring.size(), len(r.names)-r.next)
		if r.next == 0 {
			n = min(n, firstBatch)
		}
		if n > 0 {
			first := r.takeNames(n)
			ring.fill(first, r.names[first:first+n])
			return true
		}
		r.room.Wait()
	}
}

func (r *filesReader) namesLeft() bool { return !r.stopped && r.next < len(r.names) }

// hasRoom returns how many files more may be opened.
func (r *filesReader) hasRoom() int { return min(r.files-r.open, 2*r.files-r.held) }

// takeNames takes the next n names, and returns the index of the first.
func (r *filesReader) takeNames(n int) int {
	first := r.next
	r.next += n
	r.open += n
	r.held += n
	if r.next == len(r.names) {
		r.room.Broadcast()
	}
	return first
}

// finish appends a result.
func (r *filesReader) finish(d FileData, cached bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.append(d)
	r.open--
	r.room.Signal()
	if r.hot++; !cached {
		r.hot = 0
	}
	if r.plain && r.hot >= hotFiles && r.next >= r.again && r.late == 0 {
		r.plain = false
		r.room.Broadcast()
	}
}

// append appends a result. The caller holds mu.
func (r *filesReader) append(d FileData) {
	r.results = append(r.results, d)
	if len(r.results) == 1 {
		r.arrived.Signal()
	}
}

// finishBatch appends what a ring has read, and passes the other files on.
func (r *filesReader) finishBatch(ring *filesRing, late bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if late {
		r.late--
	}
	missed := 0
	for i := range ring.files {
		f := &ring.files[i]
		if !f.whole {
			r.passed = append(r.passed, f.openFile)
			missed++
			if r.takers < r.files {
				r.goWork(nil)
			}
			continue
		}
		r.append(FileData{Index: f.index, Name: r.names[f.index], Data: f.buf[:f.n:f.n], whole: f.buf})
		r.open--
		r.room.Signal()
	}
	if missed > 0 {
		r.room.Broadcast()
	}
	switch {
	case r.plain:
	case missed >= pauseMisses && 2*missed > len(ring.files):
		r.goPause()
	default:
		for ; r.rings > 1 && r.namesLeft(); r.rings-- {
			r.goWork(new(filesRing))
		}
	}
}

// ringFailed makes the other goroutines read without rings.
func (r *filesReader) ringFailed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.again = len(r.names)
	r.goPlain()
}

// read reads a file by plain calls or, if it is not cached, through the rings of the System.
func (r *filesReader) read(l *loader, p openFile) FileData {
	d := FileData{Index: p.index, Name: r.names[p.index], whole: p.buf}
	if r.ctx.Err() != nil {
		d.Err = &os.PathError{Op: "read", Path: d.Name, Err: context.Cause(r.ctx)}
		if p.fd >= 0 {
			_ = sys.CloseFile(p.fd) // it was only read
		}
		return d
	}
	if d.whole == nil {
		d.whole = loadBuffers.Get().(*[loadMax]byte)
	}
	large := func(n int64) { d.large = r.reserve(n) }
	if p.fd < 0 {
		d.Data, d.Err = l.load(r.ctx, d.Name, d.whole[:], large)
	} else {
		d.Data, d.Err = l.rest(r.ctx, p.fd, d.Name, d.whole[:], p.n, true, large)
	}
	if errors.Is(d.Err, reactor.ErrTaken) { // the kernel may still write to it
		d.whole, d.Data = nil, nil
	}
	return d
}

// reserve waits until n bytes of the budget are free, or all of it for a larger file.
func (r *filesReader) reserve(n int64) int64 {
	b := &r.budget
	n = min(n, b.all)
	r.mu.Lock()
	defer r.mu.Unlock()
	for b.free < n && !r.stopped {
		b.cond.Wait()
	}
	b.free -= n
	return n
}

// ReadFile reads a whole file, like os.ReadFile.
func ReadFile(name string) ([]byte, error) { return defaultSystem().ReadFile(name) }

// ReadFile reads a whole file, like os.ReadFile. Data that is not cached is read through a ring if
// other operations are in flight.
func (s *System) ReadFile(name string) ([]byte, error) {
	f := s.newLoader()
	defer f.done()
	whole := loadBuffers.Get().(*[loadMax]byte)[:]
	large := false
	data, err := f.load(context.Background(), name, whole, func(int64) { large = true })
	if errors.Is(err, reactor.ErrTaken) { // the kernel may still write to it
		return nil, err
	}
	defer loadBuffers.Put((*[loadMax]byte)(whole))
	if !large {
		data = bytes.Clone(data)
	}
	if data == nil && err == nil {
		data = []byte{} // as os.ReadFile
	}
	return data, err
}

// loader reads files one after the other.
type loader struct {
	f      *File
	used   bool // it has joined its System
	missed bool // the last file was not read from the page cache alone
}

func (s *System) newLoader() *loader { return &loader{f: &File{state: &state{sys: s, fd: -1}}} }

// done lets the System count what was read, and free its rings.
func (l *loader) done() {
	l.f.dropped.Stop()
	if l.used || l.f.stats() != (Stats{}) {
		_ = l.f.sys.forget(l.f.state) // the error is of rings that have failed before
	}
}

// load reads a whole file into buf, or into memory of its own if it is larger. It calls large with
// the size of such a file before it allocates.
func (l *loader) load(ctx context.Context, name string, buf []byte, large func(int64)) ([]byte, error) {
	if sys.ODirect == 0 || l.f.sys.opts.Mode == ModePlain || testLogged() {
		return l.loadOS(name, buf, large)
	}
	fd, err := sys.OpenRead(name)
	if err != nil {
		l.missed = true
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return l.rest(ctx, fd, name, buf, 0, false, large)
}

// rest is load of an open file whose first n bytes are in buf. A ring has opened an early one: if it
// is a named pipe, that did not wait for a writer. rest closes fd.
func (l *loader) rest(ctx context.Context, fd int, name string, buf []byte, n int, early bool, large func(int64)) ([]byte, error) {
	f := l.f
	f.fd, f.name = fd, name
	f.known.Store(uint32(routeUnknown))
	f.hits.Store(0)
	f.allowed[reading].Store(false)
	l.missed = false
	m, err := 0, error(nil)
	if n < len(buf) {
		m, err = l.fill(ctx, buf[n:], int64(n))
		n += m
	} else if !f.mayCall(reading) {
		err = syscall.ESPIPE
	}
	if errors.Is(err, syscall.ESPIPE) {
		if early {
			return loadEarly(ctx, fd, name, buf, n, large)
		}
		return loadStream(os.NewFile(uintptr(fd), name), buf, n, large)
	}
	defer sys.CloseFile(fd)
	if err != nil || n < len(buf) {
		return buf[:n], err
	}
	return l.grow(ctx, buf, large)
}

// grow continues a file that is larger than buf.
func (l *loader) grow(ctx context.Context, buf []byte, large func(int64)) ([]byte, error) {
	size := int64(len(buf)) * 4
	if known := sys.FileSize(l.f.fd); known > int64(len(buf)) {
		size = known + 1 // the last read finds the end
	}
	large(size)
	data := make([]byte, size)
	n := copy(data, buf)
	for {
		m, err := l.fill(ctx, data[n:], int64(n))
		n += m
		if err != nil || n < len(data) {
			return data[:n], err
		}
		data = append(data, make([]byte, len(data)/2)...) // it grows, or has no size
	}
}

// fill reads until p is full or the file ends.
func (l *loader) fill(ctx context.Context, p []byte, off int64) (n int, err error) {
	for n < len(p) {
		if m, ok := l.readCached(p[n:], off+int64(n)); ok {
			if n += m; m == 0 || m < min(len(p)-n+m, cachedMax) && endsAt(off+int64(n)) {
				return n, nil
			}
			continue
		}
		m, err := l.read(ctx, p[n:], off+int64(n))
		if m == 0 || err != nil {
			return n, err
		}
		n += m
	}
	return n, nil
}

// readCached reads from the page cache once, if it has the next page.
func (l *loader) readCached(p []byte, off int64) (int, bool) {
	if l.f.sys.opts.Mode != ModeAuto {
		return 0, false
	}
	return l.f.readCached(p, off)
}

// read reads once.
func (l *loader) read(ctx context.Context, p []byte, off int64) (int, error) {
	f := l.f
	l.missed = true
	if !l.used {
		l.used = true
		f.sys.join(f)
	}
	if ctx.Err() != nil {
		return 0, f.pathError("read", context.Cause(ctx))
	}
	r, turn, err := f.choose(context.Background(), false)
	switch {
	case err != nil:
		return 0, f.pathError("read", err)
	case r == nil:
		defer turn.done()
		return f.plainCall(reading, p, off)
	}
	return f.throughRing(ctx, r, reading, p, off)
}

// loadStream reads a file without offsets, such as a FIFO, whose first n bytes are in buf. It closes f.
func loadStream(f *os.File, buf []byte, n int, large func(int64)) ([]byte, error) {
	defer f.Close()
	m, err := io.ReadFull(f, buf[n:])
	n += m
	switch err {
	case io.EOF, io.ErrUnexpectedEOF:
		return buf[:n], nil
	case nil:
		large(int64(len(buf)) * 4)
		rest, err := io.ReadAll(f)
		return append(bytes.Clone(buf), rest...), err
	}
	return buf[:n], err
}

// loadEarly is loadStream of a file that a ring has opened.
func loadEarly(ctx context.Context, fd int, name string, buf []byte, n int, large func(int64)) ([]byte, error) {
	f, stop, err := earlyFile(ctx, fd, name)
	defer stop()
	data := buf[:n]
	if err == nil {
		data, err = loadStream(f, buf, n, large)
	} else {
		_ = f.Close() // it was only read
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = &os.PathError{Op: "read", Path: name, Err: context.Cause(ctx)}
	}
	return data, err
}

// loadOS is load by package os.
func (l *loader) loadOS(name string, buf []byte, large func(int64)) ([]byte, error) {
	l.missed = true
	if info, err := os.Stat(name); err == nil && info.Size() > int64(len(buf)) {
		large(info.Size())
		return os.ReadFile(name)
	}
	data, err := os.ReadFile(name)
	if len(data) > len(buf) {
		large(int64(len(data)))
		return data, err
	}
	return buf[:copy(buf, data)], err
}

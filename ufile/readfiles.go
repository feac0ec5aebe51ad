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
	"sync/atomic"
	"syscall"

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
	// Files is how many files are open at a time, and how many goroutines read them; 0 means 128.
	// More hide more of a disk's latency.
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
// arrive. Cached files are read by plain system calls, others through a ring. The error of one
// file does not end the loop. When ctx ends, the files that were not read are yielded with an
// error that wraps context.Cause(ctx), so that the loop sees every name once. If the loop is left
// early, the operations in flight end first. The loop may run again, and reads again.
func (s *System) ReadFiles(ctx context.Context, names []string, o ReadFilesOptions) iter.Seq[FileData] {
	return func(yield func(FileData) bool) {
		if o.Files <= 0 {
			o.Files = readFilesDefault
		}
		if o.Memory <= 0 {
			o.Memory = readFilesMemory
		}
		n := min(o.Files, len(names))
		ctx, cancel := context.WithCancel(ctx)
		r := &filesReader{s: s, ctx: ctx, names: names, results: make(chan FileData, n), held: make(chan struct{}, 2*n)}
		r.budget.free, r.budget.all = o.Memory, o.Memory
		r.budget.cond.L = &r.budget.mu
		var wg sync.WaitGroup
		for range n {
			wg.Go(r.work)
		}
		go func() {
			wg.Wait()
			close(r.results)
		}()
		defer func() { // also after a panic of the loop
			cancel()
			for d := range r.results {
				r.release(d)
			}
		}()
		for d := range r.results {
			more := yield(d)
			r.release(d)
			if !more {
				return
			}
		}
	}
}

// filesReader is one loop over ReadFiles.
type filesReader struct {
	s       *System
	ctx     context.Context
	names   []string
	next    atomic.Int64
	results chan FileData
	held    chan struct{} // one for each buffer of loadBuffers that is in use
	budget  struct {      // of large files
		mu        sync.Mutex
		cond      sync.Cond
		free, all int64
	}
}

// release takes back what a result held.
func (r *filesReader) release(d FileData) {
	if d.whole != nil {
		loadBuffers.Put(d.whole)
	}
	<-r.held
	if d.large > 0 {
		r.budget.mu.Lock()
		r.budget.free += d.large
		r.budget.mu.Unlock()
		r.budget.cond.Broadcast()
	}
}

// work reads files until there are no more.
func (r *filesReader) work() {
	f := r.s.newLoader()
	defer f.done()
	for {
		i := int(r.next.Add(1) - 1)
		if i >= len(r.names) {
			return
		}
		d := FileData{Index: i, Name: r.names[i]}
		r.held <- struct{}{}
		if r.ctx.Err() != nil {
			d.Err = &os.PathError{Op: "read", Path: d.Name, Err: context.Cause(r.ctx)}
		} else {
			d.whole = loadBuffers.Get().(*[loadMax]byte)
			d.Data, d.Err = f.load(r.ctx, d.Name, d.whole[:], func(n int64) {
				d.large = r.reserve(n)
			})
			if errors.Is(d.Err, reactor.ErrTaken) { // the kernel may still write to it
				d.whole, d.Data = nil, nil
			}
		}
		r.results <- d
	}
}

// reserve waits until n bytes of the budget are free, or all of it for a larger file.
func (r *filesReader) reserve(n int64) int64 {
	b := &r.budget
	n = min(n, b.all)
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.free < n {
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
	f    *File
	used bool // it has joined its System
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
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	f := l.f
	f.fd, f.name = fd, name
	f.known.Store(uint32(routeUnknown))
	f.hits.Store(0)
	f.allowed[reading].Store(false)
	n, err := l.fill(ctx, buf, 0)
	if errors.Is(err, syscall.ESPIPE) {
		return loadStream(fd, name, buf, large)
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

// loadStream reads a file without offsets, such as a FIFO. It closes fd.
func loadStream(fd int, name string, buf []byte, large func(int64)) ([]byte, error) {
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	n, err := io.ReadFull(f, buf)
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

// loadOS is load by package os.
func (l *loader) loadOS(name string, buf []byte, large func(int64)) ([]byte, error) {
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

// SPDX-License-Identifier: MIT

package ufile

import (
	"context"
	"os"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/internal/ringloop"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// filesRing reads cached files, a batch at a time: one submission opens all of them, one reads them,
// one looks for their ends, and one closes them. No operation waits for data or for another process
// (RESOLVE_CACHED, RWF_NOWAIT). Files that are not read to their ends by one read stay open; plain
// calls continue them. For one file a ring takes longer than the calls, for 32 it takes less time.
//
// The descriptors are ordinary ones, so that plain calls need not open a file again: a named pipe's
// writer would get EPIPE, and some devices do not allow it.
type filesRing struct {
	ring  *uring.Ring
	how   uring.OpenHow
	slots [filesBatch]ringFile
	files []ringFile // of the batch
	cqes  [filesBatch]uring.CQE
	stage uint64
	err   error // why the ring can no longer be used
}

// ringFile is a file of a batch.
type ringFile struct {
	openFile
	path  uring.Path
	named bool // path is valid
	whole bool // read to its end, and closed
	busy  bool // an operation is in flight
}

// canReadFiles reports whether ReadFiles may use rings of its own.
func (s *System) canReadFiles() bool {
	return s.opts.Mode == ModeAuto && s.opts.Reactor.Restrict == nil && !s.plain.Load() && !testLogged() &&
		features.HaveOp(uring.OpOpenAt2) == nil && features.HaveOp(uring.OpClose) == nil
}

// open opens the ring.
func (b *filesRing) open() error {
	ring, err := ringloop.Open(uring.Options{Entries: filesBatch, NoIOWait: true,
		CoopTaskrun: features.HaveSetup(uring.SetupCoopTaskrun) == nil}, 8)
	b.ring, b.err = ring, err
	b.how = uring.OpenHow{Flags: syscall.O_RDONLY | syscall.O_CLOEXEC, Resolve: sys.ResolveCached}
	return err
}

// close closes the ring.
func (b *filesRing) close() {
	if b.ring != nil {
		_ = b.ring.Close() // nothing is in flight
		b.ring = nil
	}
}

// size returns how many files a batch may have.
func (b *filesRing) size() int { return min(b.ring.SQEntries(), filesBatch) }

// fill begins a batch with the files whose names have the indices from first on.
func (b *filesRing) fill(first int, names []string) {
	b.files = b.slots[:len(names)]
	for i, name := range names {
		path, err := uring.NewPath(name)
		b.files[i] = ringFile{openFile: openFile{index: first + i, fd: -1}, path: path, named: err == nil}
	}
}

// read reads the files of the batch, and returns how many reads got data.
func (b *filesRing) read() (reads uint64) {
	data := func(f *ringFile, res int32) {
		if res > 0 {
			f.n += int(res)
			reads++
		}
	}
	b.each(func(f *ringFile) bool { return f.named }, func(f *ringFile, e *uring.SQE) {
		e.OpenAt2(uring.AtCWD, f.path, &b.how)
	}, func(f *ringFile, res int32) {
		if res >= 0 {
			f.fd = int(res)
		}
	})
	b.each(func(f *ringFile) bool { return f.fd >= 0 }, func(f *ringFile, e *uring.SQE) {
		f.buf = loadBuffers.Get().(*[loadMax]byte)
		e.Read(uring.Fd(f.fd), f.buf[:], 0).SetRWFlags(uring.RWNoWait)
	}, data)
	// Only a second read of 0 bytes is an end: a named pipe without a writer has none, and a device may
	// have less at a time than it has in all. An empty file is passed on.
	b.each(func(f *ringFile) bool { return 0 < f.n && f.n < loadMax }, func(f *ringFile, e *uring.SQE) {
		e.Read(uring.Fd(f.fd), f.buf[f.n:], int64(f.n)).SetRWFlags(uring.RWNoWait)
	}, func(f *ringFile, res int32) {
		f.whole = res == 0
		data(f, res)
	})
	b.each(func(f *ringFile) bool { return f.whole }, func(f *ringFile, e *uring.SQE) {
		e.Close(f.fd)
	}, func(f *ringFile, res int32) {
		if res == -int32(syscall.ECANCELED) { // the kernel had no thread for it
			_ = sys.CloseFile(f.fd)
		}
	})
	return reads
}

// each runs an operation for each of some files of the batch, and waits for all of them. If the ring
// fails, err is set, and later calls do nothing.
func (b *filesRing) each(of func(*ringFile) bool, build func(*ringFile, *uring.SQE), done func(*ringFile, int32)) {
	if b.err != nil {
		return
	}
	b.stage++ // a completion of an earlier stage is none of this one
	left := 0
	for i := range b.files {
		f := &b.files[i]
		if of(f) {
			e := b.ring.SQE()
			build(f, e)
			e.SetUserData(b.stage<<8 | uint64(i))
			f.busy = true
			left++
		}
	}
	for left > 0 {
		if _, err := b.ring.SubmitAndWait(left); err != nil && !ringloop.Temporary(err) {
			b.fail(err, left, done)
			return
		}
		left -= b.reap(done)
	}
}

// reap handles completions, and returns their number.
func (b *filesRing) reap(done func(*ringFile, int32)) (n int) {
	for _, c := range b.cqes[:b.ring.Reap(b.cqes[:])] {
		i := int(c.UserData & 0xff)
		if c.UserData>>8 == b.stage && i < len(b.files) && b.files[i].busy {
			f := &b.files[i]
			f.busy = false
			done(f, c.Res)
			n++
		}
	}
	return n
}

// fail waits for what the kernel has taken before the ring failed. The kernel may go on using the
// memory of what does not complete, which is kept.
func (b *filesRing) fail(err error, left int, done func(*ringFile, int32)) {
	b.err = err
	end, pause := time.Now().Add(failedWait), 20*time.Microsecond
	for left -= b.reap(done); left > b.ring.Pending() && time.Now().Before(end); left -= b.reap(done) {
		time.Sleep(pause)
		pause = min(2*pause, 10*time.Millisecond)
	}
	lost := left > b.ring.Pending()
	if lost {
		kept := b.slots
		ringloop.Leak(&kept)
	}
	for i := range b.files {
		f := &b.files[i]
		switch {
		case !f.busy:
		case f.whole && !lost: // not closed
			_ = sys.CloseFile(f.fd)
		case !f.whole && lost:
			f.buf, f.n = nil, 0
		}
	}
}

// earlyFile returns the os.File of a file without offsets that a ring has opened. The ring has not
// waited for the writer of a named pipe, as open(2) does: so earlyFile waits until one has written or
// closed it. The end of ctx ends reads of a named pipe with os.ErrDeadlineExceeded until the caller calls stop.
func earlyFile(ctx context.Context, fd int, name string) (f *os.File, stop func() bool, err error) {
	mode, _, errno := sys.FileMode(fd)
	if errno != 0 || mode&syscall.S_IFMT != syscall.S_IFIFO || syscall.SetNonblock(fd, true) != nil {
		return os.NewFile(uintptr(fd), name), func() bool { return true }, nil
	}
	f = os.NewFile(uintptr(fd), name)
	stop = context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	return f, stop, awaitWriter(f)
}

const pollIn = 1 // POLLIN

// awaitWriter waits until a named pipe has data, or a writer has come and gone.
func awaitWriter(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return conn.Read(func(fd uintptr) bool {
		n, errno := sys.PollNow([]sys.PollFD{{Fd: int32(fd), Events: pollIn}})
		return n > 0 || errno != 0 && errno != syscall.EINTR
	})
}

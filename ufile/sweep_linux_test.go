// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/faultsweep"
	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/ufile"
)

// swept holds the files of the sweep's operations.
type swept struct {
	dir     string
	content []byte
	direct  int // O_DIRECT, where the file system has it

	sim bool // the rings are simulated
}

// with opens a System and a file for one run, and checks both after the run: nothing is in
// flight, operations without a fault still work, and Close succeeds.
func (w *swept) with(t *faultsweep.Trial, mode ufile.Mode, flag int, do func(s *ufile.System, f *ufile.File)) {
	path := filepath.Join(w.dir, "file")
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, w.content) {
		_ = os.Remove(path) // ext4 flushes a file that replaces another
		if err := os.WriteFile(path, w.content, 0o600); err != nil {
			t.Fatalf("%v", err)
		}
	}
	o := reactor.Options{Loops: 1, Entries: 16, InFlight: 32}
	t.Rings(&o)
	s, err := ufile.NewSystem(ufile.Options{Mode: mode, Reactor: o})
	if err != nil {
		t.Fatalf("%v", err)
	}
	f, err := s.OpenFile(path, os.O_RDWR|flag, 0)
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer func() {
		t.Disarm()
		p := ufile.AlignedBuffer(4096)
		n, err := f.ReadAt(p, 4096)
		if err == nil && (n != len(p) || w.changed(f, p, 4096)) {
			t.Errorf("a read afterwards: %d bytes, or not the file's", n)
		}
		dead := errors.Is(err, reactor.ErrFailed)
		if !dead || !w.sim { // a ring whose parker has failed reports nothing
			t.Await("no operation is in flight", func() bool { return s.Stats().Reactor.InFlight == 0 })
		}
		if err != nil && !dead {
			t.Errorf("a read afterwards: %v", err)
		}
		c, fired := t.Choice() // a ring on which no operation waits may fail later
		if err := f.Close(); err != nil && !dead && !(fired && !c.Passing && errors.Is(err, reactor.ErrFailed)) {
			t.Errorf("close: %v", err)
		}
		if _, err := f.ReadAt(p, 0); !errors.Is(err, os.ErrClosed) {
			t.Errorf("a read after close: %v", err)
		}
	}()
	do(s, f)
}

// changed reports whether p differs from the file's content at an offset.
func (w *swept) changed(f *ufile.File, p []byte, off int) bool {
	content, err := os.ReadFile(f.Name())
	return err != nil || !bytes.Equal(p, content[off:off+len(p)])
}

// read checks the result of a read of all of p.
func (w *swept) read(t *faultsweep.Trial, what string, p []byte, off, n int, err error) {
	if ok := t.Judge(what, err); ok && n != len(p) || n < 0 || n > len(p) {
		t.Errorf("%s: %d of %d bytes, %v", what, n, len(p), err)
	} else if !bytes.Equal(p[:n], w.content[off:off+n]) {
		t.Errorf("%s: %d bytes that are not the file's", what, n)
	}
}

// wrote checks the result of a write of p: all of it is in the file or, after an error,
// each byte is old or new.
func (w *swept) wrote(t *faultsweep.Trial, what, path string, p []byte, off, n int, err error) {
	now, readErr := os.ReadFile(path)
	if readErr != nil || len(now) != len(w.content) {
		t.Fatalf("%d bytes, %v", len(now), readErr)
	}
	ok := t.Judge(what, err)
	if ok && (n != len(p) || !bytes.Equal(now[off:off+len(p)], p)) {
		t.Errorf("%s: %d of %d bytes, or the file does not hold them", what, n, len(p))
	}
	for i, b := range now {
		if b != w.content[i] && (i < off || i >= off+len(p) || b != p[i-off]) {
			t.Fatalf("%s: byte %d of the file is neither old nor new", what, i)
		}
	}
}

// fresh returns n bytes that do not occur in the file.
func (w *swept) fresh(n int) []byte {
	p := ufile.AlignedBuffer(n)
	for i := range p {
		p[i] = ^w.content[i]
	}
	return p
}

func (w *swept) readAt(mode ufile.Mode, flag int, uncached bool) func(*faultsweep.Trial) {
	return func(t *faultsweep.Trial) {
		w.with(t, mode, flag, func(_ *ufile.System, f *ufile.File) {
			if uncached {
				_ = f.Sync()
				_ = sys.Fadvise(int(f.Fd()), 0, 0, 4 /* POSIX_FADV_DONTNEED */)
			}
			p := ufile.AlignedBuffer(8192)
			t.Arm()
			n, err := f.ReadAt(p, 4096)
			t.Disarm()
			w.read(t, "ReadAt", p, 4096, n, err)
		})
	}
}

// crowd reads from several goroutines at once, so that the ring is not idle.
func (w *swept) crowd(mode ufile.Mode, flag int) func(t *faultsweep.Trial) {
	return func(t *faultsweep.Trial) {
		w.with(t, mode, flag, func(_ *ufile.System, f *ufile.File) {
			var wg sync.WaitGroup
			t.Arm()
			for g := range 4 {
				wg.Go(func() {
					p := ufile.AlignedBuffer(8192)
					n, err := f.ReadAt(p, int64(g)*8192)
					w.read(t, "ReadAt", p, g*8192, n, err)
				})
			}
			wg.Wait()
			t.Disarm()
		})
	}
}

// vectored reads into and writes from several buffers.
func (w *swept) vectored(mode ufile.Mode, flag int) func(*faultsweep.Trial) {
	return func(t *faultsweep.Trial) {
		w.with(t, mode, flag, func(_ *ufile.System, f *ufile.File) {
			p := ufile.AlignedBuffer(12288)
			t.Arm()
			n, err := f.ReadvAt([][]byte{p[:4096], p[4096:]}, 4096)
			w.read(t, "ReadvAt", p, 4096, n, err)
			p = w.fresh(12288)
			n, err = f.WritevAt([][]byte{p[:8192], p[8192:]}, 4096)
			t.Disarm()
			w.wrote(t, "WritevAt", f.Name(), p, 4096, n, err)
		})
	}
}

// engine makes the calls that storage engines make.
func (w *swept) engine(t *faultsweep.Trial) {
	w.with(t, ufile.ModeAuto, 0, func(s *ufile.System, f *ufile.File) {
		t.Arm()
		defer t.Disarm()
		t.Judge("Datasync", f.Datasync())
		t.Judge("SyncFileRange", f.SyncFileRange(0, 0, ufile.SyncWrite))
		t.Judge("Flock", f.Flock(ufile.LockShared))
		_, err := f.TryFlock(ufile.LockExclusive)
		t.Judge("TryFlock", err)
		t.Judge("LockRange", f.LockRange(ufile.LockShared, 0, 10))
		_, err = f.TryLockRange(ufile.LockExclusive, 0, 0)
		t.Judge("TryLockRange", err)
		if temp, err := s.CreateTemp(w.dir, "temp"); t.Judge("CreateTemp", err) {
			_ = os.Remove(temp.Name())
			_ = temp.Close()
		}
	})
}

func (w *swept) writeAt(mode ufile.Mode, flag int) func(*faultsweep.Trial) {
	return func(t *faultsweep.Trial) {
		w.with(t, mode, flag, func(_ *ufile.System, f *ufile.File) {
			p := w.fresh(8192)
			t.Arm()
			n, err := f.WriteAt(p, 4096)
			t.Disarm()
			w.wrote(t, "WriteAt", f.Name(), p, 4096, n, err)
		})
	}
}

// contexts makes the calls with a context, which is cancelled meanwhile if cut is set.
func (w *swept) contexts(cut bool) func(*faultsweep.Trial) {
	return func(t *faultsweep.Trial) {
		w.with(t, ufile.ModeRing, 0, func(_ *ufile.System, f *ufile.File) {
			cause := errors.New("cut")
			call := func(what string, do func(ctx context.Context) error) {
				ctx, cancel := context.WithCancelCause(context.Background())
				defer cancel(nil)
				if cut {
					go cancel(cause)
				}
				err := do(ctx)
				if !cut || !errors.Is(err, cause) {
					t.Judge(what, err)
				}
			}
			p, q := make([]byte, 8192), w.fresh(8192)
			rounds := 1
			if cut {
				rounds = 4 // so that some are cancelled in flight
			}
			var n int
			t.Arm()
			for range rounds {
				call("ReadAtContext", func(ctx context.Context) (err error) { n, err = f.ReadAtContext(ctx, p, 4096); return err })
				if !bytes.Equal(p[:n], w.content[4096:4096+n]) {
					t.Errorf("%d bytes that are not the file's", n)
				}
				call("WriteAtContext", func(ctx context.Context) (err error) { n, err = f.WriteAtContext(ctx, q, 16384); return err })
			}
			t.Disarm()
		})
	}
}

func (w *swept) batch(mode ufile.Mode, flag int, write bool) func(*faultsweep.Trial) {
	return func(t *faultsweep.Trial) {
		w.with(t, mode, flag, func(s *ufile.System, f *ufile.File) {
			// The first read opens the file's ring: that must not fail here.
			_, _ = f.ReadAt(ufile.AlignedBuffer(4096), 0)
			t.Arm()
			defer t.Disarm()
			b, err := s.NewBatch(ufile.BatchOptions{Depth: 4, Buffers: 1, BufferSize: 4096})
			if !t.Judge("NewBatch", err) {
				return
			}
			ranges := make([]ufile.Range, 6)
			for i := range ranges {
				buf := ufile.AlignedBuffer(4096)
				if i == 0 {
					buf = b.Buffer(0)
				}
				if write {
					copy(buf, w.fresh(4096))
				}
				ranges[i] = ufile.Range{File: f, Off: int64(i) * 8192, Buf: buf}
			}
			if write {
				err = b.Write(ranges)
			} else {
				err = b.Read(ranges)
			}
			t.Disarm()
			t.Judge("Batch", err)
			w.ranges(t, f, ranges, write)
			for i := range ranges { // the kernel has it no longer
				clear(ranges[i].Buf)
				defer func() {
					t.Settle()
					if i > 0 && !bytes.Equal(ranges[i].Buf, make([]byte, 4096)) {
						t.Errorf("the buffer of range %d was written to after the call", i)
					}
				}()
			}
			// Without its own ring a batch reads as the file does, and the file's only ring
			// may have failed on a machine with one processor.
			if err := b.Read(ranges[:1]); err != nil && !(mode == ufile.ModeRing && errors.Is(err, reactor.ErrFailed)) {
				t.Errorf("a batch afterwards: %v", err)
			}
			if err := b.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			if err := b.Read(ranges[:1]); !errors.Is(err, os.ErrClosed) {
				t.Errorf("after close: %v", err)
			}
		})
	}
}

// buffers reads and writes with buffers of a pool, and closes it meanwhile.
func (w *swept) buffers(mode ufile.Mode) func(*faultsweep.Trial) {
	return func(t *faultsweep.Trial) {
		w.with(t, mode, w.direct, func(s *ufile.System, f *ufile.File) {
			early, err := s.NewBuffers(1, 8192)
			if err != nil {
				t.Fatalf("%v", err)
			}
			// A context opens the file's ring: that must not fail here.
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			_, _ = f.ReadAtContext(ctx, ufile.AlignedBuffer(4096), 0)
			t.Arm()
			defer t.Disarm()
			b, err := s.NewBuffers(2, 8192)
			if err != nil {
				t.Fatalf("%v", err)
			}
			p, q, old := b.Get(), b.Get(), early.Get()
			n, err := f.ReadAtContext(ctx, old, 4096)
			w.read(t, "early buffer", old, 4096, n, err)
			var wg sync.WaitGroup
			wg.Go(func() {
				n, err := f.ReadAtContext(ctx, p, 8192)
				w.read(t, "ReadAtContext", p, 8192, n, err)
			})
			wg.Go(func() {
				if err := early.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
			wg.Wait()
			copy(q, w.fresh(8192))
			n, err = f.WriteAtContext(ctx, q, 4096)
			t.Disarm()
			w.wrote(t, "WriteAtContext", f.Name(), q, 4096, n, err)
			if n, reason := b.Registered(); n < 2 && reason == "" {
				t.Errorf("%d are registered, and no reason", n)
			}
			b.Put(p)
			if err := b.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
}

// ranges checks the result of each range of a batch.
func (w *swept) ranges(t *faultsweep.Trial, f *ufile.File, ranges []ufile.Range, write bool) {
	for i := range ranges {
		r := &ranges[i]
		off := int(r.Off)
		switch ok := t.Judge("range", r.Err); {
		case ok && r.N != len(r.Buf):
			t.Errorf("range %d: %d bytes and no error", i, r.N)
		case write:
			if w.changed(f, r.Buf[:r.N], off) {
				t.Errorf("range %d: the file does not hold what was written", i)
			}
		case !bytes.Equal(r.Buf[:r.N], w.content[off:off+r.N]):
			t.Errorf("range %d: wrong data", i)
		}
	}
}

// reader reads the whole file with blocks in flight, and continues after each error.
func (w *swept) reader(t *faultsweep.Trial) {
	w.with(t, ufile.ModeRing, 0, func(_ *ufile.System, f *ufile.File) {
		r := ufile.NewReader(f, ufile.ReaderOptions{BlockSize: 8192, Blocks: 3})
		var got bytes.Buffer
		t.Arm()
		for tries := 0; tries < 3; tries++ {
			_, err := r.WriteTo(&got)
			if t.Judge("Reader", err) || errors.Is(err, reactor.ErrFailed) {
				break
			}
			if tries == 1 {
				t.Disarm() // a permanent error would never end
			}
		}
		t.Disarm()
		if !bytes.HasPrefix(w.content, got.Bytes()) {
			t.Errorf("wrong data")
		}
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

// copying copies between files, through memory or by the kernel.
func (w *swept) copying(mode ufile.Mode, flag int) func(*faultsweep.Trial) {
	return func(t *faultsweep.Trial) {
		w.with(t, mode, flag, func(s *ufile.System, f *ufile.File) {
			_ = os.Remove(filepath.Join(w.dir, "copy"))
			dst, err := s.OpenFile(filepath.Join(w.dir, "copy"), os.O_RDWR|os.O_CREATE|os.O_TRUNC|flag, 0o600)
			if err != nil {
				t.Fatalf("%v", err)
			}
			defer dst.Close()
			t.Arm()
			n, err := ufile.Copy(context.Background(), dst, f, ufile.CopyOptions{BlockSize: 8192, Blocks: 2})
			t.Disarm()
			ok := t.Judge("Copy", err)
			now, readErr := os.ReadFile(dst.Name())
			if readErr != nil || int64(len(now)) < n || !bytes.Equal(now[:n], w.content[:n]) {
				t.Errorf("Copy returned %d, but did not copy them", n)
			}
			if ok && !bytes.Equal(now, w.content) {
				t.Errorf("the copy of %d bytes differs", n)
			}
		})
	}
}

// piped copies from a pipe to a file.
func (w *swept) piped(t *faultsweep.Trial) {
	w.with(t, ufile.ModeAuto, 0, func(_ *ufile.System, f *ufile.File) {
		r, p, err := os.Pipe()
		if err != nil {
			t.Fatalf("%v", err)
		}
		defer r.Close()
		fresh := w.fresh(16 << 10)
		if _, err := p.Write(fresh); err != nil {
			t.Errorf("%v", err)
		}
		_ = p.Close()
		t.Arm()
		n, err := ufile.Copy(context.Background(), f, r, ufile.CopyOptions{})
		t.Disarm()
		if ok := t.Judge("Copy", err); ok && n != int64(len(fresh)) || w.changed(f, fresh[:n], 0) {
			t.Errorf("%d of %d bytes, %v, or the file does not hold them", n, len(fresh), err)
		}
	})
}

// names makes the calls with names below a root.
func (w *swept) names(t *faultsweep.Trial) {
	dir := filepath.Join(w.dir, "root")
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatalf("%v", err)
	}
	s, err := ufile.NewSystem(ufile.Options{Mode: ufile.ModePlain})
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Arm()
	defer t.Disarm()
	r, err := s.OpenRoot(dir)
	if !t.Judge("OpenRoot", err) {
		return
	}
	ok := t.Judge("Mkdir", r.Mkdir("d", 0o700))
	ok = ok && t.Judge("WriteFile", r.WriteFile("d/a", w.content, 0o600))
	if ok {
		got, err := r.ReadFile("d/a")
		if t.Judge("ReadFile", err) && !bytes.Equal(got, w.content) {
			t.Errorf("ReadFile: %d bytes that are not the file's", len(got))
		}
		f, err := r.Open("d/a")
		if t.Judge("Open", err) {
			_ = f.Close()
		}
		sub, err := r.OpenRoot("d")
		if t.Judge("OpenRoot", err) {
			_ = sub.Close()
		}
		renamed := t.Judge("Rename", r.Rename("d/a", "d/b"))
		if _, err := os.Stat(filepath.Join(dir, "d/b")); (err == nil) != renamed {
			t.Errorf("renamed: %v, and then %v", renamed, err)
		}
		removed := t.Judge("RemoveAll", r.RemoveAll("d"))
		if _, err := os.Stat(filepath.Join(dir, "d")); removed && err == nil {
			t.Errorf("the directory d still exists")
		}
	}
	t.Disarm()
	if _, err := r.Stat("."); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// newSwept returns the files of the sweep.
func newSwept(t *testing.T) *swept {
	needRing(t)
	w := &swept{dir: t.TempDir(), content: random(44 << 10)}
	if f, err := os.OpenFile(fileOf(t, nil), os.O_RDWR|sys.ODirect, 0); err == nil {
		w.direct = sys.ODirect
		f.Close()
	}
	return w
}

// operations are all operations that the sweep runs.
func (w *swept) operations() []faultsweep.Operation {
	// Operations that a system call can replace need not fail.
	noKernelCopy := map[string][]faultsweep.Choice{"copy_file_range": faultsweep.Passes(
		syscall.EIO, syscall.ENOSPC, syscall.EINTR, syscall.EXDEV, syscall.ENOSYS, syscall.EOPNOTSUPP)}
	// os.Root makes in other ways the calls that openat2 replaces.
	quietly := map[string][]faultsweep.Choice{"path call": faultsweep.Passes(syscall.EIO, syscall.ENOMEM, syscall.EPERM, syscall.EINTR)}
	// Calls with a name are many, and alike.
	oneErrno := map[string][]faultsweep.Choice{"path call": append(faultsweep.Fails(syscall.EIO), faultsweep.Passes(syscall.EINTR)...)}
	// Buffers that are not registered work.
	unregistered := map[string][]faultsweep.Choice{"io_uring_register": faultsweep.Passes(syscall.ENOMEM, syscall.EBUSY, syscall.EPERM)}
	ops := []faultsweep.Operation{
		{Name: "ReadAt ring", Run: w.readAt(ufile.ModeRing, 0, false), Covers: "File.ReadAt File.Close"},
		{Name: "ReadAt cached", Run: w.readAt(ufile.ModeAuto, 0, false)},
		{Name: "ReadAt not cached", Run: w.readAt(ufile.ModeAuto, 0, true)},
		{Name: "ReadAt O_DIRECT", Run: w.readAt(ufile.ModeAuto, w.direct, false)},
		{Name: "ReadAt O_DIRECT, four", Run: w.crowd(ufile.ModeAuto, w.direct), Opened: true, Most: 2},
		{Name: "WriteAt ring", Run: w.writeAt(ufile.ModeRing, 0), Opened: true, Covers: "File.WriteAt"},
		{Name: "WriteAt O_DIRECT", Run: w.writeAt(ufile.ModeAuto, w.direct)},
		{Name: "vectored ring", Run: w.vectored(ufile.ModeRing, 0), Opened: true, Covers: "File.ReadvAt File.WritevAt"},
		{Name: "vectored auto", Run: w.vectored(ufile.ModeAuto, 0)},
		{Name: "vectored O_DIRECT", Run: w.vectored(ufile.ModeAuto, w.direct)},
		{Name: "for engines", Run: w.engine,
			Covers: "File.Datasync File.SyncFileRange File.Flock File.TryFlock File.LockRange File.TryLockRange System.CreateTemp"},
		{Name: "with a context", Run: w.contexts(false), Opened: true, Covers: "File.ReadAtContext File.WriteAtContext"},
		{Name: "with a cancelled context", Run: w.contexts(true), Opened: true, Most: 2},
		{Name: "Batch.Read cached", Run: w.batch(ufile.ModeRing, 0, false), Most: 1, Covers: "System.NewBatch Batch.Read Batch.Buffer Batch.Close"},
		{Name: "Batch.Read O_DIRECT", Syscalls: true, Run: w.batch(ufile.ModeAuto, w.direct, false), Most: 2},
		{Name: "Batch.Write ring", Syscalls: true, Run: w.batch(ufile.ModeRing, 0, true), Opened: true, Most: 2, Covers: "Batch.Write"},
		{Name: "Buffers", Run: w.buffers(ufile.ModeAuto), Opened: true, Most: 2, Instead: unregistered,
			Covers: "System.NewBuffers Buffers.Get Buffers.Put Buffers.Registered Buffers.Close"},
		{Name: "Reader.WriteTo", Run: w.reader, Opened: true, Most: 2, Covers: "NewReader Reader.WriteTo Reader.Close"},
		{Name: "Reader.Read", Run: w.readerReads, Opened: true, Most: 1, Covers: "Reader.Read Reader.Seek"},
		{Name: "Copy by the kernel", Run: w.copying(ufile.ModeAuto, 0), Instead: noKernelCopy, Covers: "Copy"},
		{Name: "Copy O_DIRECT", Run: w.copying(ufile.ModeAuto, w.direct), Opened: true, Most: 2},
		{Name: "Copy with holes", Run: w.sparse, Instead: noKernelCopy, Opened: true, Most: 1, Covers: "CopyRange"},
		{Name: "Copy from a pipe", Run: w.piped},
		{Name: "ReadFrom and WriteTo", Run: w.positions, Opened: true, Most: 1, Covers: "File.ReadFrom File.WriteTo"},
		{Name: "opening", Run: w.opening, Covers: "System.Open System.Create System.OpenFile System.NewFile System.DirFS NewSystem"},
		{Name: "Root", Run: w.names, Instead: quietly,
			Covers: "System.OpenRoot Root.Mkdir Root.WriteFile Root.ReadFile Root.Open Root.OpenRoot Root.Rename Root.RemoveAll Root.Stat Root.Close"},
		{Name: "Root, the rest", Run: w.moreNames, Instead: oneErrno,
			Covers: "Root.Create Root.OpenFile Root.MkdirAll Root.Chmod Root.Chown Root.Lchown Root.Chtimes Root.Link Root.Symlink Root.Readlink Root.Lstat Root.Remove Root.FS"},
		{Name: "whole files", Run: w.wholeFiles, Instead: map[string][]faultsweep.Choice{"open": faultsweep.Fails(syscall.EMFILE, syscall.ENOENT)},
			Covers: "System.ReadFiles System.ReadFile"},
		{Name: "many whole files", Run: w.manyFiles, Most: 1, Instead: map[string][]faultsweep.Choice{
			"open":    faultsweep.Fails(syscall.EMFILE, syscall.ENOENT),
			"OPENAT2": faultsweep.Passes(syscall.EAGAIN, syscall.EINVAL, syscall.EMFILE), "CLOSE": faultsweep.Passes(syscall.ECANCELED)}},
		{Name: "mapped", Run: w.mapped, Instead: map[string][]faultsweep.Choice{"mmap file": faultsweep.Fails(syscall.ENOMEM),
			"mincore": faultsweep.Passes(syscall.ENOMEM, syscall.ENOSYS)},
			Covers: "File.Map Mapped.Len Mapped.Slice Mapped.Prefetch Mapped.Guard Mapped.Close"},
	}
	return append(ops, w.simulated()...)
}

// wholeFiles reads a file by name, alone and as one of several.
func (w *swept) wholeFiles(t *faultsweep.Trial) {
	w.with(t, ufile.ModeAuto, 0, func(s *ufile.System, f *ufile.File) {
		t.Arm()
		defer t.Disarm()
		p, err := s.ReadFile(f.Name())
		if t.Judge("ReadFile", err) && !bytes.Equal(p, w.content) {
			t.Errorf("ReadFile: wrong data")
		}
		w.readFiles(t, s, []string{f.Name(), f.Name()}, ufile.ReadFilesOptions{})
	})
}

// manyFiles reads enough cached files for a ring.
func (w *swept) manyFiles(t *faultsweep.Trial) {
	w.with(t, ufile.ModeAuto, 0, func(s *ufile.System, f *ufile.File) {
		t.Arm()
		defer t.Disarm()
		w.readFiles(t, s, slices.Repeat([]string{f.Name()}, 70), ufile.ReadFilesOptions{Files: 32})
	})
}

// readFiles reads names of the file, each of which is yielded once.
func (w *swept) readFiles(t *faultsweep.Trial, s *ufile.System, names []string, o ufile.ReadFilesOptions) {
	seen := 0
	for d := range s.ReadFiles(context.Background(), names, o) {
		seen++
		if t.Judge("ReadFiles", d.Err) && !bytes.Equal(d.Data, w.content) {
			t.Errorf("ReadFiles: wrong data")
		}
	}
	if seen != len(names) {
		t.Errorf("ReadFiles: %d of %d files", seen, len(names))
	}
}

// mapped reads from a mapped file.
func (w *swept) mapped(t *faultsweep.Trial) {
	w.with(t, ufile.ModeAuto, 0, func(_ *ufile.System, f *ufile.File) {
		t.Arm()
		defer t.Disarm()
		m, err := f.Map()
		if !t.Judge("Map", err) {
			return
		}
		t.Judge("Prefetch", m.Prefetch(ufile.Extent{Len: m.Len()}))
		t.Judge("Guard", m.Guard(func() error {
			p, err := m.Slice(0, int(m.Len()))
			if err == nil && !bytes.Equal(p, w.content) {
				t.Errorf("Slice: wrong data")
			}
			return err
		}))
		t.Judge("Close", m.Close())
	})
}

// simulated returns the operations on simulated rings.
func (s *swept) simulated() []faultsweep.Operation {
	w := *s
	w.sim = true
	ops := []faultsweep.Operation{
		{Name: "simulated ReadAt", Run: w.readAt(ufile.ModeRing, 0, false)},
		{Name: "simulated ReadAt, four", Run: w.crowd(ufile.ModeRing, 0), Most: 3},
		{Name: "simulated WriteAt", Run: w.writeAt(ufile.ModeRing, 0)},
		{Name: "simulated with a context", Run: w.contexts(false), Most: 1},
		{Name: "simulated with a cancelled context", Run: w.contexts(true), Most: 1},
		{Name: "simulated Buffers", Run: w.buffers(ufile.ModeRing), Most: 2},
		{Name: "simulated Reader", Run: w.readerReads, Most: 1},
		{Name: "simulated Copy O_DIRECT", Run: w.copying(ufile.ModeAuto, w.direct), Most: 1},
	}
	for i := range ops {
		ops[i].Sim = true
	}
	return ops
}

// TestFaultSweep makes each call to the kernel fail in turn.
// Promise: ufile/right-result-error
func TestFaultSweep(t *testing.T) {
	faultsweep.Need(t)
	faultsweep.Check(t, newSwept(t).operations())
}

// TestFaultSweepSimulated does the same with simulated rings.
// Promise: ufile/right-result-error
func TestFaultSweepSimulated(t *testing.T) {
	faultsweep.CheckSimulated(t, newSwept(t).operations())
}

// TestFaultSweepCoversAll compares the sweep with the exported functions of the package.
// Promise: ufile/right-result-error
func TestFaultSweepCoversAll(t *testing.T) {
	faultsweep.API(t, (&swept{content: random(44 << 10)}).operations(), faultsweep.Exempt{
		"calls the method of the default System": "ReadFile ReadFiles Open Create OpenFile NewFile NewBatch NewBuffers OpenRoot DirFS Backend CreateTemp",
		"makes no call to the kernel": "System.Backend System.Stats File.Stats File.Name Root.Name Root.Backend Batch.Registered " +
			"AlignedBuffer Stats.Plus Total",
		"is the method of os.File, which has no test hook": "File.Read File.Write File.WriteString File.Seek File.Sync File.Truncate File.Stat File.Chmod File.Chown " +
			"File.Chdir File.ReadDir File.Readdir File.Readdirnames File.SetDeadline File.SetReadDeadline File.SetWriteDeadline File.SyscallConn File.Fd File.OSFile",
	})
}

// other opens a second file with content.
func (w *swept) other(t *faultsweep.Trial, s *ufile.System, content []byte) *ufile.File {
	path := filepath.Join(w.dir, "other")
	_ = os.Remove(path)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatalf("%v", err)
	}
	f, err := s.OpenFile(path, os.O_RDWR|w.direct, 0)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return f
}

// readerReads reads into the caller's buffers, seeks, and reads again.
func (w *swept) readerReads(t *faultsweep.Trial) {
	w.with(t, ufile.ModeRing, 0, func(_ *ufile.System, f *ufile.File) {
		r := ufile.NewReader(f, ufile.ReaderOptions{BlockSize: 8192, Blocks: 3})
		t.Arm()
		for _, from := range []int{0, 20_000} {
			if _, err := r.Seek(int64(from), io.SeekStart); err != nil {
				t.Errorf("Seek: %v", err)
			}
			got := make([]byte, 20_000)
			n, err := io.ReadFull(r, got)
			if !t.Judge("Reader", err) && errors.Is(err, reactor.ErrFailed) {
				break
			}
			if !bytes.Equal(got[:n], w.content[from:from+n]) {
				t.Errorf("wrong data at %d", from)
			}
		}
		t.Disarm()
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if _, err := r.Read(make([]byte, 1)); !errors.Is(err, os.ErrClosed) {
			t.Errorf("a read after close: %v", err)
		}
	})
}

// sparse copies a range with a hole to a file without holes.
func (w *swept) sparse(t *faultsweep.Trial) {
	w.with(t, ufile.ModeAuto, 0, func(s *ufile.System, f *ufile.File) {
		holed := bytes.Clone(w.content)
		if err := punchHole(f, 8192, 16384); err == nil {
			clear(holed[8192 : 8192+16384])
		}
		dst := w.other(t, s, w.content)
		defer dst.Close()
		t.Arm()
		n, err := ufile.CopyRange(context.Background(), dst, 0, f, 0, int64(len(holed)), ufile.CopyOptions{BlockSize: 8192, Blocks: 2})
		t.Disarm()
		ok := t.Judge("CopyRange", err)
		now, readErr := os.ReadFile(dst.Name())
		if readErr != nil || int64(len(now)) < n || !bytes.Equal(now[:n], holed[:n]) {
			t.Errorf("CopyRange returned %d, but did not copy them", n)
		}
		if ok && n != int64(len(holed)) {
			t.Errorf("copied %d bytes, want %d", n, len(holed))
		}
	})
}

// positions copies by ReadFrom and WriteTo from the positions of files with O_DIRECT, where
// these methods are not those of package os.
func (w *swept) positions(t *faultsweep.Trial) {
	w.with(t, ufile.ModeAuto, w.direct, func(s *ufile.System, f *ufile.File) {
		dst := w.other(t, s, nil)
		defer dst.Close()
		var got bytes.Buffer
		t.Arm()
		written, writeErr := f.WriteTo(&got)
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			t.Errorf("Seek: %v", err)
		}
		read, readErr := dst.ReadFrom(f)
		t.Disarm()
		if ok := t.Judge("WriteTo", writeErr); written != int64(got.Len()) || !bytes.HasPrefix(w.content, got.Bytes()) || ok && got.Len() != len(w.content) {
			t.Errorf("WriteTo: returned %d bytes, %d arrived, or wrong data", written, got.Len())
		}
		ok := t.Judge("ReadFrom", readErr)
		now, err := os.ReadFile(dst.Name())
		if err != nil || int64(len(now)) < read || !bytes.Equal(now[:read], w.content[:read]) || ok && len(now) != len(w.content) {
			t.Errorf("ReadFrom: %d bytes, the file has %d, %v, or wrong data", read, len(now), err)
		}
	})
}

// punchHole frees the blocks of a part of a file, where the file system can.
func punchHole(f *ufile.File, off, n int64) error {
	return sys.PunchHole(int(f.Fd()), off, n)
}

// opening opens files in each way, and reads them.
func (w *swept) opening(t *faultsweep.Trial) {
	w.with(t, ufile.ModeAuto, 0, func(_ *ufile.System, f *ufile.File) {
		made := filepath.Join(w.dir, "made")
		_ = os.Remove(made)
		std, err := os.Open(f.Name())
		if err != nil {
			t.Fatalf("%v", err)
		}
		t.Arm()
		defer t.Disarm()
		s, err := ufile.NewSystem(ufile.Options{})
		if err != nil {
			_ = std.Close()
			t.Fatalf("%v", err)
		}
		check := func(what string, open func() (*ufile.File, error)) {
			f, err := open()
			if !t.Judge(what, err) {
				return
			}
			defer f.Close()
			p := make([]byte, 4096)
			if what == "Create" {
				_, err = f.WriteAt(p, 0)
			} else if _, err = f.ReadAt(p, 4096); err == nil && !bytes.Equal(p, w.content[4096:8192]) {
				t.Errorf("%s: wrong data", what)
			}
			t.Judge(what, err)
		}
		check("NewFile", func() (*ufile.File, error) { return s.NewFile(std) })
		check("Open", func() (*ufile.File, error) { return s.Open(f.Name()) })
		check("OpenFile", func() (*ufile.File, error) { return s.OpenFile(f.Name(), os.O_RDWR, 0) })
		check("Create", func() (*ufile.File, error) { return s.Create(made) })
		got, err := fs.ReadFile(s.DirFS(w.dir), "file")
		if t.Judge("DirFS", err) && !bytes.Equal(got, w.content) {
			t.Errorf("DirFS: %d bytes that are not the file's", len(got))
		}
	})
}

// moreNames makes the calls with names below a root that names leaves out.
func (w *swept) moreNames(t *faultsweep.Trial) {
	dir := filepath.Join(w.dir, "root2")
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatalf("%v", err)
	}
	s, err := ufile.NewSystem(ufile.Options{Mode: ufile.ModePlain})
	if err != nil {
		t.Fatalf("%v", err)
	}
	r, err := s.OpenRoot(dir)
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer r.Close()
	t.Arm()
	defer t.Disarm()
	f, err := r.Create("a")
	if !t.Judge("Create", err) {
		return
	}
	_ = f.Close()
	f, err = r.OpenFile("a", os.O_RDWR, 0)
	if t.Judge("OpenFile", err) {
		_ = f.Close()
	}
	w.rootLinks(t, r)
	w.rootModes(t, r, dir)
	w.rootMoves(t, r, dir)
	t.Disarm()
	if err := r.RemoveAll("."); err == nil {
		t.Errorf("the root directory was removed")
	}
}

// rootLinks makes links and reads them.
func (w *swept) rootLinks(t *faultsweep.Trial, r *ufile.Root) {
	if t.Judge("Link", r.Link("a", "hard")) {
		info, err := r.Lstat("hard")
		if t.Judge("Lstat", err) && !info.Mode().IsRegular() {
			t.Errorf("Lstat: %v", info.Mode())
		}
	}
	if t.Judge("Symlink", r.Symlink("a", "soft")) {
		to, err := r.Readlink("soft")
		if t.Judge("Readlink", err) && to != "a" {
			t.Errorf("Readlink: %q", to)
		}
		uid, gid := owner()
		t.Judge("Lchown", r.Lchown("soft", uid, gid))
	}
}

// rootModes changes the attributes of a name, and checks them.
func (w *swept) rootModes(t *faultsweep.Trial, r *ufile.Root, dir string) {
	stamp := time.Unix(1_000_000_000, 0)
	mode := t.Judge("Chmod", r.Chmod("a", 0o640))
	uid, gid := owner()
	t.Judge("Chown", r.Chown("a", uid, gid))
	timed := t.Judge("Chtimes", r.Chtimes("a", stamp, stamp))
	info, err := os.Stat(filepath.Join(dir, "a"))
	if err != nil || mode && info.Mode() != 0o640 || timed && !info.ModTime().Equal(stamp) {
		t.Errorf("the file is %v, %v; changed %v, %v", info, err, mode, timed)
	}
}

// rootMoves makes directories, renames, exchanges, lists and removes.
func (w *swept) rootMoves(t *faultsweep.Trial, r *ufile.Root, dir string) {
	there := func(name string) bool { _, err := os.Lstat(filepath.Join(dir, name)); return err == nil }
	if !t.Judge("MkdirAll", r.MkdirAll("d/e", 0o700)) {
		return
	}
	if t.Judge("Rename", r.Rename("a", "d/a")) != there("d/a") {
		t.Errorf("Rename returned no error and did not rename")
	}
	entries, err := fs.ReadDir(r.FS(), "d")
	if t.Judge("ReadDir", err) && len(entries) == 0 {
		t.Errorf("FS: the listing is empty")
	}
	if there("d/a") && t.Judge("Remove", r.Remove("d/a")) && there("d/a") {
		t.Errorf("Remove returned no error and did not remove")
	}
}

// SPDX-License-Identifier: MIT

//go:build linux

package reactor

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// register puts a descriptor into the table.
func register(t testing.TB, r *Reactor, fd int) *FixedFile {
	t.Helper()
	f, err := r.RegisterFile(fd)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// on makes an operation work on a registered file.
func on(f *FixedFile, op *Op) *Op {
	op.File = f
	return op
}

func TestRegisteredFile(t *testing.T) {
	overKinds(t, func(t *testing.T, r *Reactor) {
		for range 3 { // the slot is used again
			file, want := pattern(t, 4096)
			fd := int(file.Fd())
			f := register(t, r, fd)
			if err := file.Close(); err != nil { // the table has a reference of its own
				t.Fatal(err)
			}
			var readers sync.WaitGroup
			for i := range 16 {
				readers.Go(func() {
					p := make([]byte, 256)
					if res := r.Do(on(f, readOp(fd, p, int64(i*256)))); res.Res != 256 || !bytes.Equal(p, want[i*256:(i+1)*256]) {
						t.Errorf("%+v", res)
					}
				})
			}
			readers.Wait()
			ops, results := make([]Op, 4), make([]Result, 4)
			for i := range ops {
				ops[i] = *on(f, readOp(fd, make([]byte, 8), int64(8*i)))
			}
			if err := r.DoChain(ops, results); err != nil || results[3].Res != 8 || !bytes.Equal(ops[3].Buf, want[24:32]) {
				t.Errorf("chain: %v, %+v", err, results)
			}
			f.Release()
			f.Release() // nothing
			if res := r.Do(on(f, readOp(fd, make([]byte, 1), 0))); !errors.Is(res.Cause, errReleased) {
				t.Errorf("after Release: %+v", res)
			}
			if err := r.DoBatch(ops, results); !errors.Is(err, errReleased) {
				t.Errorf("a batch after Release: %v", err)
			}
			if _, err := r.Queue(on(f, readOp(fd, make([]byte, 1), 0)), nil); !errors.Is(err, errReleased) {
				t.Errorf("queue after Release: %v", err)
			}
			waitFor(t, func() bool { return r.Stats().Files == 0 })
			if f.slot != 0 {
				t.Errorf("slot %d although none was in use", f.slot)
			}
		}
		if n := r.Stats().FixedFiles; n < 3*20 {
			t.Errorf("%d operations named the registered file", n)
		}
		over(t, r)
	})
}

// TestReleasedFileStaysUntilItsOperationsEnd has one slot only.
func TestReleasedFileStaysUntilItsOperationsEnd(t *testing.T) {
	for _, o := range []Options{{Files: 1}, {Files: 1, Pinned: true, Loops: 2}} {
		if o.Pinned {
			ringtest.NeedKernel(t, "DEFER_TASKRUN", "6.1")
		}
		r := open(t, o)
		rd, wr := pipe(t)
		other, _ := pattern(t, 10)
		f := register(t, r, rd)
		if _, err := r.RegisterFile(wr); !errors.Is(err, ErrFilesFull) {
			t.Fatalf("a table of one slot takes two: %v", err)
		}
		// The second of the chain looks its file up when the first has ended.
		wait := uring.NewTimespec(20 * time.Millisecond)
		ops, results := make([]Op, 2), make([]Result, 2)
		ops[0].SQE.Timeout(&wait, 0, uring.TimeoutSuccess)
		ops[0].Keep = &wait
		ops[1] = *on(f, readOp(rd, make([]byte, 8), 0))
		done := make(chan error)
		go func() { done <- r.DoChain(ops, results) }()
		waitFor(t, func() bool { return f.claim.state.Load() > byHolder })
		f.Release()
		if _, err := r.RegisterFile(int(other.Fd())); !errors.Is(err, ErrFilesFull) {
			t.Fatalf("the slot of an operation in flight was taken: %v", err)
		}
		syscall.Write(wr, []byte("eight by"))
		if err := <-done; err != nil || results[1].Res != 8 || string(ops[1].Buf) != "eight by" {
			t.Fatalf("%v, %+v", err, results)
		}
		waitFor(t, func() bool { return r.Stats().Files == 0 })
		register(t, r, int(other.Fd())) // left for Close
	}
}

// TestReleaseLetsGoOfTheFile sees the end of a pipe whose other end was only in
// the table.
func TestReleaseLetsGoOfTheFile(t *testing.T) {
	overKinds(t, func(t *testing.T, r *Reactor) {
		rd, wr, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer rd.Close()
		f := register(t, r, int(wr.Fd()))
		wr.Close()
		op := &Op{Buf: []byte("x"), File: f}
		op.SQE.Write(uring.Fd(0), op.Buf, 0)
		if res := r.Do(op); res.Res != 1 {
			t.Fatalf("%+v", res)
		}
		f.Release()
		if n, err := rd.Read(make([]byte, 2)); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		rd.SetReadDeadline(time.Now().Add(ringtest.Patience))
		if n, err := rd.Read(make([]byte, 2)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("the table still has the file: %v", err)
		}
	})
}

func TestRegisterFileErrors(t *testing.T) {
	overKinds(t, func(t *testing.T, r *Reactor) {
		for _, fd := range []int{1 << 20, -1} {
			if _, err := r.RegisterFile(fd); !errors.Is(err, syscall.EBADF) {
				t.Errorf("descriptor %d: %v", fd, err)
			}
		}
		if n := r.Stats().Files; n != 0 {
			t.Errorf("%d slots are lost", n)
		}
		other := open(t, Options{Loops: 1})
		f := register(t, other, 0)
		if res := r.Do(on(f, readOp(0, make([]byte, 1), 0))); !errors.Is(res.Cause, errForeign) {
			t.Errorf("a file of another reactor: %+v", res)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.RegisterFile(0); !errors.Is(err, ErrClosed) {
			t.Errorf("of a closed reactor: %v", err)
		}
	})
}

// frugal is a ring whose kernel lets little be registered.
type frugal struct {
	*kernelRing
	files  int           // slots of a table
	refuse syscall.Errno // what a longer one answers
	old    bool          // no sparse tables
	bytes  int           // of buffers
	clones bool          // can clone
}

func (k *frugal) RegisterFilesSparse(n int) error {
	switch {
	case k.old:
		return syscall.EINVAL
	case n > k.files:
		return k.refuse
	}
	return k.kernelRing.RegisterFilesSparse(n)
}

func (k *frugal) RegisterFiles(fds []int) error {
	if len(fds) > k.files {
		return k.refuse
	}
	return k.kernelRing.RegisterFiles(fds)
}

// openFrugal opens rings like k.
func openFrugal(k frugal) opener {
	return func(o *Options, i int, first ring) (ring, parker, error) {
		if first != nil {
			first = first.(*frugal).kernelRing
		}
		r, p, err := openKernelRing(o, i, first)
		if err != nil {
			return nil, nil, err
		}
		mine := k
		mine.kernelRing = r.(*kernelRing)
		return &mine, p, nil
	}
}

func TestSmallerFileTables(t *testing.T) {
	for _, test := range []struct {
		frugal
		slots int
		err   error
	}{
		{frugal{files: 100, refuse: syscall.EMFILE}, 64, nil},
		{frugal{files: 20, refuse: syscall.ENOMEM}, 16, nil},
		{frugal{files: 40, refuse: syscall.ENOMEM, old: true}, 32, nil},
		{frugal{files: 10, refuse: syscall.EMFILE}, 0, syscall.EMFILE},
		{frugal{files: 10, refuse: syscall.EPERM}, 0, syscall.EPERM},
	} {
		r := open(t, Options{Loops: 2, open: openFrugal(test.frugal)})
		n := 0
		var err error
		for n <= 1<<10 {
			if _, err = r.RegisterFile(0); err != nil {
				break
			}
			n++
		}
		want := test.err
		if want == nil {
			want = ErrFilesFull
		}
		if n != test.slots || !errors.Is(err, want) {
			t.Errorf("%+v: %d slots, then %v", test.frugal, n, err)
		}
	}
}

func TestOperationOnARegisteredFileDoesNotAllocate(t *testing.T) {
	for _, o := range []Options{{Loops: 1}, {Loops: 1, Pinned: true}} {
		r := open(t, o)
		file, _ := pattern(t, 4096)
		f := register(t, r, int(file.Fd()))
		pool, err := r.NewBufferPool(BufferPoolOptions{Buffers: 2, BufferSize: 4096})
		if err != nil {
			t.Fatal(err)
		}
		op := &Op{File: f}
		if n := ringtest.Allocations(200, func() {
			b, ok := pool.TryGet()
			if !ok {
				t.Fatal("no buffer")
			}
			op.Buffer = b
			op.SQE.Read(uring.Fd(0), b.Bytes()[:512], 0)
			if res := r.Do(op); res.Res != 512 {
				t.Fatalf("%+v", res)
			}
			b.Put()
		}); n >= 1 && !raceEnabled {
			t.Errorf("%+v: %v allocations per operation", o, n)
		}
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	}
}

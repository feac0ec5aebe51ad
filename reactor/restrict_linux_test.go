// SPDX-License-Identifier: MIT

package reactor

import (
	"bytes"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// TestRestrictedReactor limits rings to reading: that works in every way, with
// registered files and buffers, deadlines and cancellations, and nothing else
// does.
func TestRestrictedReactor(t *testing.T) {
	ringtest.NeedKernel(t, "RESTRICTIONS", "5.10")
	for _, o := range kinds {
		if o.Pinned {
			ringtest.NeedKernel(t, "DEFER_TASKRUN", "6.1")
		}
		o.Restrict = []uring.Op{uring.OpRead}
		r := open(t, o)
		f, want := pattern(t, 1<<14)
		p := make([]byte, 4096)
		if res := read(r, int(f.Fd()), p, 4096); res.Res != 4096 || !bytes.Equal(p, want[4096:8192]) {
			t.Errorf("a read: %+v", res)
		}
		readRegistered(t, r, int(f.Fd()), want)
		rfd, _ := pipe(t)
		ended := make(chan Result, 1)
		if _, err := r.QueueWithDeadline(readOp(rfd, p, 0), time.Now(), func(res Result) { ended <- res }); err != nil {
			t.Fatal(err)
		}
		if res := <-ended; res.Cause == nil {
			t.Errorf("a read with a deadline: %+v", res)
		}
		id, err := r.Queue(readOp(rfd, p, 0), func(res Result) { ended <- res })
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Cancel(id); err != nil {
			t.Error(err)
		}
		if res := <-ended; res.Errno() != syscall.ECANCELED {
			t.Errorf("a cancelled read: %+v", res)
		}
		for op := uring.Op(0); op < uring.OpCount; op++ {
			if slices.Contains(o.restrictions().Ops, op) {
				continue
			}
			res := r.Do(bareOp(op))
			if e := res.Errno(); res.Cause != nil || e != syscall.EACCES && e != syscall.EINVAL {
				t.Errorf("%v: %+v, want EACCES", op, res)
			}
		}
		if res := r.Do(bareOp(uring.OpWrite)); res.Errno() != syscall.EACCES {
			t.Errorf("a write: %+v, want EACCES", res)
		}
		over(t, r)
	}
}

// readRegistered reads with a registered file into a registered buffer.
func readRegistered(t *testing.T, r *Reactor, fd int, want []byte) {
	t.Helper()
	ringtest.NeedKernel(t, "tables of files and buffers", "5.13")
	file, err := r.RegisterFile(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Release()
	pool, err := r.NewBufferPool(BufferPoolOptions{Buffers: 2, BufferSize: 4096})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	b, _ := pool.TryGet()
	defer b.Put()
	op := readOp(fd, b.Bytes(), 0)
	op.File, op.Buffer = file, b
	if res := r.Do(op); res.Res != 4096 || !bytes.Equal(b.Bytes(), want[:4096]) {
		t.Errorf("a registered read: %+v", res)
	}
	if s := r.Stats(); s.FixedBuffers == 0 && pool.Registered() > 0 {
		t.Errorf("no registered buffer was used: %+v", s)
	}
}

// bareOp is an operation with arguments that mean nothing.
func bareOp(code uring.Op) *Op {
	op := new(Op)
	*op.SQE.Raw() = uring.RawSQE{Opcode: uint8(code), Fd: -1}
	return op
}

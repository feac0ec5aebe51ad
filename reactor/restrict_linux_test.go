// SPDX-License-Identifier: MIT

package reactor

import (
	"bytes"
	"slices"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// TestRestrictedReactor restricts rings to reads: reads and cancellations work, other
// operations do not.
// Promise: reactor/options-restrict-kernel
func TestRestrictedReactor(t *testing.T) {
	ringtest.NeedKernel(t, "RESTRICTIONS", "5.10")
	for _, o := range kinds {
		o.Restrict = []uring.Op{uring.OpRead}
		r := open(t, o)
		f, want := pattern(t, 1<<14)
		p := make([]byte, 4096)
		if res := read(r, int(f.Fd()), p, 4096); res.Res != 4096 || !bytes.Equal(p, want[4096:8192]) {
			t.Errorf("a read: %+v", res)
		}
		rfd, _ := pipe(t)
		ended := make(chan Result, 1)
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

// bareOp is an operation whose arguments are all zero.
func bareOp(code uring.Op) *Op {
	op := new(Op)
	*op.SQE.Raw() = uring.RawSQE{Opcode: uint8(code), Fd: -1}
	return op
}

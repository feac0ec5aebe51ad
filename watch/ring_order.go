// SPDX-License-Identifier: MIT

package watch

import (
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// newestFirst says whether one enter completes deferred task work in the reverse
// of the order in which it arose, as Linux 6.1 does and 6.12 does not. The
// suite's Order/Arrival fails there without this.
var newestFirst = sync.OnceValue(func() bool {
	runtime.LockOSThread() // to which the ring belongs
	defer runtime.UnlockOSThread()
	r, err := openRing(false, false)
	if err != nil {
		return false
	}
	defer r.Close()
	var bells []*sys.FD
	for i := range uint64(2) {
		bell, err := sys.EventFD()
		if err != nil {
			return false
		}
		defer bell.Close()
		bells = append(bells, bell)
		r.SQE().PollAdd(uring.Fd(bell.Int()), uring.PollEvents(Read)).SetUserData(i)
	}
	if n, err := r.Submit(); n != len(bells) || err != nil {
		return false
	}
	for _, bell := range bells {
		sys.Signal(bell)
	}
	var c [2]uring.CQE
	_, err = r.SubmitAndWaitTimeout(len(c), time.Second)
	return err == nil && r.Reap(c[:]) == len(c) && c[0].UserData == 1
})

// turner puts completions in the order in which they arose, on kernels where
// they come in reverse. The turn's goroutine owns it.
type turner struct {
	// runs are numbers of completions in the CQ: what a wait has brought, or,
	// negative, what a mere submission has, which comes in order.
	runs    []int
	counted int         // completions in runs
	ready   []uring.CQE // in order, and not yet taken up
}

// brought notes that a wait has raised the number of completions in the CQ.
func (o *turner) brought(before, after int) {
	if before > o.counted {
		o.runs = append(o.runs, o.counted-before)
	}
	if after > before {
		o.runs = append(o.runs, after-before)
	}
	o.counted = after
}

// fetch reaps all that is in the CQ and turns it.
func (o *turner) fetch(r *uring.Ring) {
	o.brought(r.Ready(), r.Ready())
	for _, n := range o.runs {
		from := len(o.ready)
		o.ready = slices.Grow(o.ready, max(n, -n))[:from+max(n, -n)]
		r.Reap(o.ready[from:])
		if n > 0 {
			slices.Reverse(o.ready[from:])
		}
	}
	o.runs, o.counted = o.runs[:0], 0
}

// take moves completions to dst.
func (o *turner) take(dst []uring.CQE) int {
	n := copy(dst, o.ready)
	o.ready = slices.Delete(o.ready, 0, n)
	return n
}

// SPDX-License-Identifier: MIT

package ringtest

import (
	"testing"

	"github.com/ringside-io/ringside/uring"
)

// SubmitWays makes a sequence of calls of the submission side, with counts of Publish
// that are used late, more than once and after other submissions. Each filled entry must
// be executed once, and no other entry. The bytes choose the calls.
func SubmitWays(t *testing.T, r *uring.Ring, steps []byte) {
	t.Helper()
	size := r.SQSpace()
	pending := func() int { return size - r.SQSpace() }
	made, left := uint64(0), make(map[uint64]bool)
	dst := make([]uring.CQE, 4*size)
	reap := func() {
		for _, c := range dst[:r.Reap(dst)] {
			if c.Res != 0 || !left[c.UserData] {
				t.Fatalf("completion %+v of an entry that is over, or was never filled", c)
			}
			delete(left, c.UserData)
		}
	}
	counts := []int{0}
	for i, step := range steps {
		arg := int(step >> 4)
		if step%8 < 2 {
			for range 1 + arg {
				if e := r.SQE(); e != nil {
					e.Nop().SetUserData(made)
					left[made] = true
					made++
				}
			}
			continue
		}
		before, n, err := pending(), 0, error(nil)
		switch step % 8 {
		case 2:
			n, err = r.Submit()
		case 3:
			n, err = r.SubmitNoWait()
		case 4:
			if n, err = r.Publish(); err == nil && n != before {
				t.Fatalf("step %d: publish answers %d of %d", i, n, before)
			}
			counts = append(counts, n)
			n = 0
		case 5, 6: // a count from any time before
			n, err = r.Wait(uring.WaitOptions{NoSubmit: true, Published: counts[arg%len(counts)], Brief: arg&1 != 0})
		case 7:
			if n, err = r.Publish(); err == nil {
				n, err = r.Wait(uring.WaitOptions{NoSubmit: true, Published: n})
			}
		}
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if n < 0 || n > before || pending() != before-n {
			t.Fatalf("step %d took %d of %d entries, %d are pending", i, n, before, pending())
		}
		reap()
	}
	for pending() > 0 {
		if _, err := r.Submit(); err != nil {
			t.Fatal(err)
		}
		reap()
	}
	for len(left) > 0 {
		if _, err := r.Wait(uring.WaitOptions{NoSubmit: true, Count: 1}); err != nil {
			t.Fatal(err)
		}
		reap()
	}
}

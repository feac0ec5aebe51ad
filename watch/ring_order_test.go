// SPDX-License-Identifier: MIT

package watch

import (
	"slices"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// TestTurner mixes completions from submissions and from waits.
func TestTurner(t *testing.T) {
	r := ringtest.Open(t, &uring.Options{Entries: 16})
	next := uint64(0)
	bring := func(n int) {
		for range n {
			r.SQE().Nop().SetUserData(next)
			next++
		}
		if _, err := r.Submit(); err != nil {
			t.Fatal(err)
		}
	}
	o := &reorderer{}
	wait := func(n int) {
		before := r.Ready()
		bring(n)
		o.brought(before, r.Ready())
	}
	wait(3) // 0 1 2, turned
	bring(2)
	wait(2) // 5 6, turned
	wait(0)
	bring(2)
	o.fetch(r)
	wait(3) // 9 10 11, turned
	o.fetch(r)
	var got []uint64
	var c [5]uring.CQE
	for n := o.take(c[:]); n > 0; n = o.take(c[:]) {
		for _, c := range c[:n] {
			got = append(got, c.UserData)
		}
	}
	if want := []uint64{2, 1, 0, 3, 4, 6, 5, 7, 8, 11, 10, 9}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}

// SPDX-License-Identifier: MIT

package watchtest

import (
	"math/rand/v2"
	"slices"

	"github.com/ringside-io/ringside/watch"
)

// writersFirst mixes writable and readable descriptors.
func writersFirst(r *rig) {
	for _, mode := range everyMode {
		var fds []int
		for i := range 12 {
			a, b := r.pair()
			write(r, b, "x")
			interest := watch.Read
			if i%3 == 1 {
				interest = watch.Write
			} else if i%3 == 2 {
				interest |= watch.Write
			}
			r.add(a, interest, mode)
			fds = append(fds, a)
		}
		evs := r.all(len(fds))
		reading := false
		for _, e := range evs {
			switch writes := e.Events&watch.Write != 0; {
			case !writes:
				reading = true
			case reading:
				r.Errorf("%v: %d can be written and comes after one that cannot: %v", mode, e.FD, evs)
			}
		}
		for _, fd := range fds {
			r.ok(r.w.Remove(fd))
		}
	}
}

// all makes one Dispatch of n reports: it waits until all are there.
func (r *rig) all(n int) []watch.Event {
	r.Helper()
	var evs []watch.Event
	r.ok(r.w.Prepare())
	for range n + quietTurns { // each Wait may bring only some
		r.ok(r.w.Wait(0))
	}
	r.w.Dispatch(func(e watch.Event) { evs = append(evs, e) })
	if len(evs) != n {
		r.Fatalf("%d reports, want %d: %v", len(evs), n, evs)
	}
	return evs
}

// arrival keeps the order in which descriptors become ready, with and without
// others that can be written.
func arrival(r *rig) {
	rng := rand.New(rand.NewPCG(5, 5))
	for _, mode := range []watch.Trigger{watch.Edge, watch.OneShot} {
		for _, n := range []int{2, 10, 100} {
			var fds []int
			for range n {
				fd := r.counter()
				r.add(fd, watch.Read, mode)
				fds = append(fds, fd)
			}
			r.quiet()
			rng.Shuffle(n, func(i, j int) { fds[i], fds[j] = fds[j], fds[i] })
			for _, fd := range fds {
				r.signal(fd)
			}
			var got []int
			for len(got) < n {
				for _, e := range r.await() {
					got = append(got, e.FD)
				}
			}
			if !slices.Equal(got, fds) {
				r.Errorf("%v: ready in the order %v, reported as %v", mode, fds, got)
			}
			for _, fd := range fds {
				r.ok(r.w.Remove(fd))
				r.shut(fd)
			}
		}
	}
}

// once reports a descriptor once per Dispatch, whatever has happened to it.
func once(r *rig) {
	for _, mode := range everyMode {
		a, b := r.pair()
		r.add(a, watch.Read|watch.PeerHangUp, mode)
		for range 5 {
			r.ok(r.w.Prepare())
			r.ok(r.w.Wait(0))
			write(r, b, "x")
		}
		r.shut(b)
		r.all(1)
		r.ok(r.w.Remove(a))
		r.shut(a)
	}
}

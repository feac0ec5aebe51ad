// SPDX-License-Identifier: MIT

package watchtest

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/watch"
)

// removePending removes a ready descriptor, at every stage of its report.
func removePending(r *rig) {
	for _, mode := range everyMode {
		for stage := range 4 {
			fd := r.counter()
			r.add(fd, watch.Read, mode)
			r.quiet()
			r.signal(fd)
			if stage > 0 {
				r.ok(r.w.Prepare())
			}
			if stage > 1 {
				r.ok(r.w.Wait(-1))
			}
			if stage > 2 { // Level may repeat the report
				r.w.Dispatch(func(watch.Event) {})
				r.ok(r.w.Prepare())
				r.ok(r.w.Wait(0))
			}
			r.ok(r.w.Remove(fd))
			r.quiet()
			r.signal(fd)
			r.quiet()
		}
	}
}

// removeNeighbours has the first callback remove and modify all others that are
// ready as well.
func removeNeighbours(r *rig) {
	for _, mode := range everyMode {
		const n = 20
		var fds []int
		for range n {
			fd := r.counter()
			r.add(fd, watch.Read, mode)
			fds = append(fds, fd)
		}
		r.quiet()
		for _, fd := range fds {
			r.signal(fd)
		}
		r.ok(r.w.Prepare())
		for range quietTurns {
			r.ok(r.w.Wait(0))
		}
		var seen []int
		r.w.Dispatch(func(e watch.Event) {
			if seen = append(seen, e.FD); len(seen) > 1 {
				return
			}
			for i, fd := range fds {
				switch {
				case fd == e.FD:
				case i%3 == 0:
					r.ok(r.w.Modify(fd, watch.Priority, mode, fd))
				default:
					r.ok(r.w.Remove(fd))
				}
			}
		})
		if len(seen) != 1 {
			r.Errorf("%v: reports of %v after the first had removed all", mode, seen)
		}
		for i, fd := range fds {
			if fd == seen[0] || i%3 == 0 {
				r.ok(r.w.Remove(fd))
			}
		}
		r.quiet()
	}
}

// addInCallback adds others, and the same again, while a report is delivered.
func addInCallback(r *rig) {
	fd := r.counter()
	r.signal(fd)
	r.add(fd, watch.Read, watch.Edge)
	generation, others := 0, map[int]bool{}
	for generation < 10 {
		_, err := r.w.Poll(-1, func(e watch.Event) {
			if e.FD != fd {
				others[e.FD] = true
				r.ok(r.w.Remove(e.FD))
				return
			}
			generation++
			r.ok(r.w.Remove(fd))
			r.ok(r.w.Add(fd, watch.Read, watch.Edge, fd)) // it is still ready
			for range 20 {                                // enough for the table to grow
				more := r.counter()
				r.signal(more)
				r.add(more, watch.Read, watch.Level)
			}
		})
		r.ok(err)
	}
	r.ok(r.w.Remove(fd))
	for len(others) < 200 {
		for _, e := range r.await() {
			others[e.FD] = true
			r.ok(r.w.Remove(e.FD))
		}
	}
	r.quiet()
}

// reuse removes, closes and opens anew under the same number, at once.
func reuse(r *rig) {
	for _, mode := range everyMode {
		for stage := range 3 {
			fd := r.counter()
			r.ok(r.w.Add(fd, watch.Read, mode, "old"))
			r.quiet()
			r.signal(fd)
			if stage > 0 {
				r.ok(r.w.Prepare())
			}
			if stage > 1 {
				r.ok(r.w.Wait(-1))
			}
			r.ok(r.w.Remove(fd))
			r.replace(fd, r.counter())
			r.ok(r.w.Add(fd, watch.Read, mode, "new"))
			r.quiet()
			r.signal(fd)
			if e := r.awaitOne(fd, watch.Read); e.Value != "new" {
				r.Errorf("%v: value %v", mode, e.Value)
			}
			r.ok(r.w.Remove(fd))
		}
	}
}

// reuseUnremoved closes a watched descriptor and opens another kind of file under its
// number before calling Remove.
func reuseUnremoved(r *rig) {
	for _, mode := range everyMode {
		fd := r.counter()
		r.ok(r.w.Add(fd, watch.Read, mode, "old"))
		r.quiet()
		r.signal(fd)
		a, b := r.pair()
		r.replace(fd, a)
		r.want(r.w.Add(fd, watch.Read, mode, "early"), syscall.EEXIST)
		r.ok(r.w.Remove(fd))
		r.want(r.w.Remove(fd), syscall.ENOENT)
		r.ok(r.w.Add(fd, watch.Read, mode, "new"))
		r.quiet()
		write(r, b, "x")
		if e := r.awaitOne(fd, watch.Read); e.Value != "new" {
			r.Errorf("%v: value %v", mode, e.Value)
		}
		r.ok(r.w.Remove(fd))

		gone := r.counter()
		r.ok(r.w.Add(gone, watch.Read, mode, "old"))
		r.shut(gone)
		r.turn(0)
		r.ok(r.w.Remove(gone))
		r.quiet()
	}
}

// releases checks that the turn after Remove releases the file.
func releases(r *rig) {
	for _, mode := range everyMode {
		a, b := r.pair()
		r.add(a, watch.Read, mode)
		r.quiet()
		r.ok(r.w.Remove(a))
		r.shut(a)
		r.ok(r.w.Prepare())
		r.ok(r.w.Wait(0))
		var p [1]byte
		if n, err := syscall.Read(b, p[:]); n != 0 || err != nil {
			r.Errorf("%v: the peer reads %d, %v: want the end", mode, n, err)
		}
	}
}

// closeReleases closes a watcher and then the descriptors that were registered: the kernel holds
// none of the files any more.
func closeReleases(t *testing.T, open func() (Watcher, error)) {
	ways := map[string]func(r *rig){
		"AtRest": func(r *rig) {
			r.quiet()
			r.ok(r.w.Close())
		},
		"InCallback": func(r *rig) {
			fd := r.counter()
			r.add(fd, watch.Read, watch.Edge)
			r.signal(fd)
			_, err := r.w.Poll(-1, func(watch.Event) { r.ok(r.w.Close()) })
			r.ok(err)
		},
	}
	for name, end := range ways {
		test := on(func(r *rig) {
			const n = 100 // for each mode, more than a queue holds
			var held, peers []int
			for _, mode := range everyMode {
				for range n {
					a, b := r.pair()
					r.add(a, watch.Read, mode)
					held, peers = append(held, a), append(peers, b)
				}
			}
			end(r)
			for _, fd := range held {
				r.shut(fd)
			}
			for _, fd := range peers {
				var p [1]byte
				if n, err := syscall.Read(fd, p[:]); n != 0 || err != nil {
					r.Fatalf("the peer reads %d, %v: want the end", n, err)
				}
			}
		})
		t.Run(name, func(t *testing.T) { test(t, open) })
	}
}

// race adds, fires, removes and reopens from one goroutine while another one
// turns. Under the lock a registration is either there or not.
func race(r *rig) {
	type registration struct {
		dead    bool
		reports int
	}
	rounds := 2000
	if short() {
		rounds = 200
	}
	s, end := share(r, func(e watch.Event) {
		reg := e.Value.(*registration)
		if reg.dead {
			r.Errorf("%d was reported after it was removed", e.FD)
		}
		reg.reports++
		r.drain(e.FD)
	})
	rng := rand.New(rand.NewPCG(1, 2))
	var fds []int
	for range 4 {
		fds = append(fds, r.counter())
	}
	regs := make([]*registration, len(fds))
	for range rounds {
		i := rng.IntN(len(fds))
		fd := fds[i]
		s.Lock()
		if regs[i] != nil {
			r.ok(r.w.Remove(fd))
			regs[i].dead = true
			regs[i] = nil
			if rng.IntN(2) == 0 {
				r.replace(fd, r.counter())
			}
		} else {
			regs[i] = &registration{}
			r.ok(r.w.Add(fd, watch.Read, everyMode[rng.IntN(3)], regs[i]))
		}
		s.Unlock()
		for range rng.IntN(3) {
			r.signal(fds[rng.IntN(len(fds))])
		}
	}
	end()
}

// duplicates closes a watched descriptor whose file another descriptor keeps open: the
// lasting state must not keep the watcher from sleeping, whether the number is removed
// or not, and reused or not. Events of other descriptors are not lost.
func duplicates(r *rig) {
	edge := r.counter()
	r.add(edge, watch.Read, watch.Edge)
	for _, mode := range everyMode {
		for _, early := range []bool{false, true} { // the state is reported before the close
			for _, reused := range []bool{false, true} {
				for _, removed := range []bool{false, true} {
					rd, wr := r.pipe()
					r.add(rd, watch.Read, mode)
					write(r, wr, "x")
					if early {
						r.awaitOne(rd, watch.Read)
					}
					dup, err := syscall.Dup(rd)
					r.ok(err)
					r.own(dup)
					if reused {
						a, b := r.pair()
						write(r, b, "x")
						r.replace(rd, a)
					} else {
						r.shut(rd)
					}
					if removed {
						r.ok(r.w.Remove(rd))
					}
					r.sleeps(1000)
					r.signal(edge)
					seen := false
					for range turnsToReport {
						for _, e := range r.turn(0) {
							seen = seen || e.FD == edge
						}
					}
					if !seen {
						r.Errorf("%v, reported before %v, reused %v, removed %v: the neighbour was not reported", mode, early, reused, removed)
					}
					if !removed {
						r.ok(r.w.Remove(rd))
					}
					r.sleeps(10)
					if reused { // the number can be watched again
						r.add(rd, watch.Read, mode)
						r.awaitOne(rd, watch.Read)
						r.ok(r.w.Remove(rd))
						r.shut(rd)
					}
				}
			}
		}
	}
}

// sleeps makes turns until one waits, with most turns at most.
func (r *rig) sleeps(most int) {
	r.Helper()
	const long = 20 * time.Millisecond
	for range most {
		start := time.Now()
		r.ok(r.w.Prepare())
		r.ok(r.w.Wait(long))
		r.w.Dispatch(func(watch.Event) {})
		if time.Since(start) >= long-time.Millisecond {
			return
		}
	}
	r.Errorf("%d turns and none waited", most)
}

// SPDX-License-Identifier: MIT

package watchtest

import (
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/watch"
)

func short() bool { return testing.Short() }

// dups opens up to n more numbers for eventfds, as far as the limits of the process
// allow. A signal to one of the returned originals makes all duplicates after it ready.
func (r *rig) dups(n int) (fds, originals []int) {
	r.Helper()
	var lim syscall.Rlimit
	r.ok(syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim))
	if was := lim; lim.Cur < lim.Max {
		lim.Cur = lim.Max
		r.ok(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lim))
		r.Cleanup(func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was) })
	}
	const perOriginal = 100
	for i := range n {
		if i%perOriginal == 0 {
			originals = append(originals, r.counter())
		}
		fd, err := syscall.Dup(originals[len(originals)-1])
		if err == syscall.EMFILE {
			r.Logf("%d descriptors instead of %d", i, n)
			for _, fd := range fds[max(len(fds)-perOriginal, 0):] { // room for others
				r.shut(fd)
			}
			return fds[:max(len(fds)-perOriginal, 0)], originals
		}
		r.ok(err)
		fds = append(fds, r.own(fd))
	}
	return fds, originals
}

// rounds returns how often to repeat a test that depends on the kernel's timing: full,
// or brief with -short.
func rounds(full, brief int) int {
	if short() {
		return brief
	}
	return full
}

func crowd() int { return rounds(20000, 1000) }

// many adds 20 000 descriptors, has all reported, and removes them in a random
// order, some while they are ready.
func many(r *rig) {
	fds, originals := r.dups(crowd())
	rng := rand.New(rand.NewPCG(20, 26))
	for _, mode := range []watch.Trigger{watch.Edge, watch.Level} {
		on := map[int]bool{}
		rng.Shuffle(len(fds), func(i, j int) { fds[i], fds[j] = fds[j], fds[i] })
		for _, fd := range fds {
			r.add(fd, watch.Read, mode)
			on[fd] = true
		}
		r.quiet()
		for i, fd := range rng.Perm(len(fds)) {
			if i == len(fds)/2 {
				break
			}
			r.ok(r.w.Remove(fds[fd]))
			delete(on, fds[fd])
		}
		for _, fd := range originals {
			r.signal(fd)
		}
		seen := map[int]bool{}
		for len(seen) < len(on) {
			for _, e := range r.await() {
				if !on[e.FD] {
					r.Fatalf("%d was reported and is not registered", e.FD)
				}
				seen[e.FD] = true
			}
		}
		if n := r.w.Len(); n != len(on) {
			r.Errorf("%d registered, want %d", n, len(on))
		}
		for fd := range on { // in no order
			r.ok(r.w.Remove(fd))
		}
		r.quiet()
		for _, fd := range originals {
			r.drain(fd)
		}
	}
}

// overflow causes more events than any queue holds before the first Dispatch.
func overflow(r *rig) {
	fds, originals := r.dups(12000)
	for _, fd := range fds {
		r.add(fd, watch.Read, watch.Edge)
	}
	r.quiet()
	for round := range rounds(3, 2) {
		for range 3 {
			for _, fd := range originals {
				r.signal(fd)
			}
			r.ok(r.w.Prepare())
			for range 3 {
				r.ok(r.w.Wait(0))
			}
		}
		seen := map[int]bool{}
		for len(seen) < len(fds) {
			for _, e := range r.await() {
				seen[e.FD] = true
			}
		}
		if round == 0 { // some are removed while their events wait in the queues
			for _, fd := range originals {
				r.signal(fd)
			}
			r.ok(r.w.Prepare())
			r.ok(r.w.Wait(0))
			for _, fd := range fds[:len(fds)/2] {
				r.ok(r.w.Remove(fd))
				seen[fd] = false
			}
			rest := fds[len(fds)/2:]
			for left := len(rest); left > 0; {
				for _, e := range r.await() {
					if !seen[e.FD] {
						r.Fatalf("%d was reported after it was removed", e.FD)
					}
					left--
				}
			}
			fds = rest
		}
		for quiet := 0; quiet < quietTurns; { // repeats of late events
			if len(r.turn(0)) > 0 {
				quiet = 0
			}
			quiet++
		}
	}
}

// fair has descriptors that are always ready; the others must be reported in time as
// well.
func fair(r *rig) {
	var always []int
	for range 3000 {
		fd := r.counter()
		r.signal(fd)
		r.add(fd, watch.Read, watch.Level)
		always = append(always, fd)
	}
	late := r.counter()
	r.add(late, watch.Read, watch.Edge)
	for range 3 {
		r.turn(0)
	}
	r.signal(late)
	seen := map[int]int{}
	for turns := 0; seen[late] == 0; turns++ {
		if turns == 50 {
			r.Fatal("what is always ready starves the rest")
		}
		for _, e := range r.turn(0) {
			seen[e.FD]++
		}
	}
	for range 20 {
		for _, e := range r.turn(0) {
			seen[e.FD]++
		}
	}
	for _, fd := range always {
		if seen[fd] == 0 {
			r.Fatal("some of what is always ready starves")
		}
	}
}

// neighbours checks that a lasting state of Level descriptors does not delay the
// reports of other descriptors.
func neighbours(r *rig) {
	for _, n := range []int{1, 3, 40} {
		lasting := map[int]bool{}
		for range n {
			fd := r.counter()
			r.add(fd, watch.Read, watch.Level)
			r.signal(fd)
			lasting[fd] = true
		}
		others := map[watch.Trigger]int{}
		for _, mode := range everyMode {
			others[mode] = r.counter()
			r.add(others[mode], watch.Read, mode)
		}
		for round := range 30 {
			for range round % 7 { // the state of the turns differs
				r.turn(-1)
			}
			mode := everyMode[round%len(everyMode)]
			r.signal(others[mode])
			turns, seen := 0, false
			for !seen && turns <= turnsToReport {
				turns++
				for _, e := range r.turn(-1) {
					seen = seen || e.FD == others[mode]
				}
			}
			if turns > turnsToReport {
				r.Errorf("round %d: an event of %v beside %d that last was not reported in %d turns", round, mode, n, turnsToReport)
			}
			r.drain(others[mode])
			if mode == watch.OneShot {
				r.ok(r.w.Modify(others[mode], watch.Read, mode, nil))
			}
		}
		for fd := range lasting {
			r.ok(r.w.Remove(fd))
		}
		for _, fd := range others {
			r.ok(r.w.Remove(fd))
		}
	}
}

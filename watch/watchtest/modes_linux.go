// SPDX-License-Identifier: MIT

package watchtest

import (
	"syscall"

	"github.com/ringside-io/ringside/watch"
)

// level reports a descriptor as long as it is ready, and not afterwards.
func level(r *rig) {
	fd := r.counter()
	r.add(fd, watch.Read, watch.Level)
	r.quiet()
	for range 3 {
		r.signal(fd)
		for range 5 {
			r.awaitOne(fd, watch.Read)
		}
		r.drain(fd)
		r.quiet()
	}
}

// edge reports each arrival once.
func edge(r *rig) {
	fd := r.counter()
	r.add(fd, watch.Read, watch.Edge)
	r.quiet()
	for range 5 { // nothing is read: each signal is new all the same
		r.signal(fd)
		r.awaitOne(fd, watch.Read)
		r.quiet()
	}
	r.drain(fd)
	r.quiet()
	r.signal(fd)
	r.awaitOne(fd, watch.Read)
}

// oneShot reports once, and again after Modify.
func oneShot(r *rig) {
	fd := r.counter()
	r.add(fd, watch.Read, watch.OneShot)
	r.quiet()
	for range 3 {
		r.signal(fd)
		r.awaitOne(fd, watch.Read)
		r.signal(fd)
		r.quiet()
		r.ok(r.w.Modify(fd, watch.Read, watch.OneShot, fd))
		r.awaitOne(fd, watch.Read) // what lasts
		r.quiet()
		r.drain(fd)
		r.ok(r.w.Modify(fd, watch.Read, watch.OneShot, fd))
		r.quiet()
	}
}

// initial checks that a descriptor that is ready when it is added is reported, in every
// mode.
func initial(r *rig) {
	for _, mode := range []watch.Trigger{watch.Level, watch.Edge, watch.OneShot} {
		fd := r.counter()
		r.signal(fd)
		r.add(fd, watch.Read|watch.Write, mode)
		r.awaitOne(fd, watch.Read|watch.Write)
		r.ok(r.w.Modify(fd, watch.Read, mode, fd))
		if e := r.awaitOne(fd, watch.Read); e.Events != watch.Read {
			r.Errorf("%v: %v after Modify", mode, e.Events)
		}
		r.ok(r.w.Remove(fd))
		r.quiet()
	}
}

// changeOfMode goes from every mode to every other, before and after a report.
func changeOfMode(r *rig) {
	modes := []watch.Trigger{watch.Level, watch.Edge, watch.OneShot}
	for _, from := range modes {
		for _, to := range modes {
			for _, reported := range []bool{false, true} {
				fd := r.counter()
				r.add(fd, watch.Read, from)
				if reported {
					r.signal(fd)
					r.awaitOne(fd, watch.Read)
				} else {
					r.quiet()
				}
				r.ok(r.w.Modify(fd, watch.Read, to, fd))
				if !reported {
					r.quiet()
					r.signal(fd)
				}
				r.awaitOne(fd, watch.Read)
				if again := len(r.turn(0)) > 0; again != (to == watch.Level) {
					r.Errorf("from %v to %v: reported again: %v", from, to, again)
				}
				r.drain(fd)
				r.turn(0)
				r.quiet()
				r.ok(r.w.Remove(fd))
			}
		}
	}
}

// drained serves a descriptor while more of its events are queued: Level does not
// report input that has been read.
func drained(r *rig) {
	var fds []int
	for range 200 {
		fd := r.counter()
		r.add(fd, watch.Read, watch.Level)
		fds = append(fds, fd)
	}
	r.quiet()
	for range 5 {
		for _, fd := range fds {
			r.signal(fd)
		}
		for served := 0; served < len(fds); {
			n, err := r.w.Poll(0, func(e watch.Event) {
				r.signal(e.FD) // more input arrives, and is read with the rest
				if r.drain(e.FD) == 0 {
					r.Fatalf("%d was reported and has nothing", e.FD)
				}
			})
			r.ok(err)
			served += n
		}
		r.quiet()
	}
}

// partial leaves some of the input unread.
func partial(r *rig) {
	a, b := r.pair()
	r.add(a, watch.Read, watch.Level)
	write(r, b, "hello")
	var got []byte
	for len(got) < 5 {
		r.awaitOne(a, watch.Read)
		var p [1]byte
		if n, err := syscall.Read(a, p[:]); n != 1 || err != nil {
			r.Fatal(n, err)
		}
		got = append(got, p[0])
	}
	r.quiet()
	if string(got) != "hello" {
		r.Errorf("read %q", got)
	}
}

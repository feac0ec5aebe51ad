// SPDX-License-Identifier: MIT

package watchtest

import (
	"syscall"

	"github.com/ringside-io/ringside/watch"
)

var everyMode = []watch.Trigger{watch.Level, watch.Edge, watch.OneShot}

// asked expects reports of the registered events only.
func asked(r *rig) {
	for _, mode := range everyMode {
		a, b := r.pair()
		r.add(a, watch.Read, mode) // writable, which is not asked for
		r.quiet()
		write(r, b, "x")
		if e := r.awaitOne(a, watch.Read); e.Events != watch.Read {
			r.Errorf("%v: %v", mode, e.Events)
		}
		r.ok(r.w.Modify(a, watch.Write, mode, a))
		if e := r.awaitOne(a, watch.Write); e.Events != watch.Write {
			r.Errorf("%v: %v", mode, e.Events)
		}
		r.ok(r.w.Modify(a, 0, mode, a))
		r.quiet()
		r.ok(r.w.Remove(a))
	}
}

// hangUp is reported without being asked for.
func hangUp(r *rig) {
	for _, mode := range everyMode {
		rd, wr := r.pipe()
		r.add(rd, 0, mode)
		r.quiet()
		r.shut(wr)
		if e := r.awaitOne(rd, watch.HangUp); e.Events != watch.HangUp {
			r.Errorf("%v: %v", mode, e.Events)
		}
		if again := len(r.turn(0)) > 0; again != (mode == watch.Level) {
			r.Errorf("%v: reported again: %v", mode, again)
		}
		r.ok(r.w.Remove(rd))
	}
}

// peerHangUp is reported, where it is registered, when a peer has shut down its
// writing.
func peerHangUp(r *rig) {
	for _, mode := range everyMode {
		a, b := r.pair()
		r.add(a, watch.PeerHangUp, mode)
		r.quiet()
		r.ok(syscall.Shutdown(b, syscall.SHUT_WR))
		if e := r.awaitOne(a, watch.PeerHangUp); e.Events != watch.PeerHangUp {
			r.Errorf("%v: %v", mode, e.Events)
		}
		r.ok(r.w.Remove(a))
	}
}

// priority is reported when urgent data arrives, and not for other data.
func priority(r *rig) {
	for _, mode := range everyMode {
		for _, interest := range []watch.Events{watch.Priority, watch.Priority | watch.PeerHangUp} {
			a, b := tcp(r)
			r.add(a, interest, mode)
			r.quiet()
			for range 2 {
				write(r, b, "x")
				r.quiet()
				r.ok(syscall.Sendto(b, []byte("!"), syscall.MSG_OOB, nil))
				if e := r.awaitOne(a, watch.Priority); e.Events != watch.Priority {
					r.Errorf("%v: %v", mode, e.Events)
				}
				_, _, err := syscall.Recvfrom(a, make([]byte, 1), syscall.MSG_OOB)
				r.ok(err)
				r.ok(r.w.Modify(a, interest, mode, a))
				r.quiet()
			}
			r.ok(r.w.Remove(a))
		}
	}
}

// tcp returns two connected sockets.
func tcp(r *rig) (a, b int) {
	r.Helper()
	socket := func() int {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		r.ok(err)
		return r.own(fd)
	}
	l := socket()
	r.ok(syscall.Bind(l, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	r.ok(syscall.Listen(l, 1))
	name, err := syscall.Getsockname(l)
	r.ok(err)
	b = socket()
	r.ok(syscall.Connect(b, name))
	a, _, err = syscall.Accept4(l, syscall.SOCK_CLOEXEC)
	r.ok(err)
	return r.own(a), b
}

// brokenPipe is an error, which is reported without being asked for.
func brokenPipe(r *rig) {
	for _, mode := range everyMode {
		rd, wr := r.pipe()
		r.add(wr, 0, mode)
		r.quiet()
		r.shut(rd)
		r.awaitOne(wr, watch.Error)
		r.ok(r.w.Remove(wr))
	}
}

// unrequested has a lasting state that is not asked for: it must neither be reported nor
// keep the watcher busy, nor hide later events.
func unrequested(r *rig) {
	for _, mode := range everyMode {
		a, b := r.pair()
		fill(r, a)
		r.ok(syscall.Shutdown(b, syscall.SHUT_WR))
		r.add(a, watch.Write, mode)
		r.quiet()
		for range 2 {
			r.drain(b)
			r.awaitOne(a, watch.Write)
			fill(r, a)
			r.turn(0) // filling is no event, but what came before may be late
			r.ok(r.w.Modify(a, watch.Write, mode, a))
			r.quiet()
		}
		r.ok(r.w.Remove(a))
	}
}

// fill writes until no more goes in.
func fill(r *rig, fd int) {
	r.Helper()
	buf := make([]byte, 64<<10)
	for {
		if _, err := syscall.Write(fd, buf); err == syscall.EAGAIN {
			return
		} else if err != nil && err != syscall.EINTR {
			r.Fatal(err)
		}
	}
}

// value comes back as it was last given.
func value(r *rig) {
	type mine struct{ n int }
	for _, mode := range everyMode {
		fd := r.counter()
		r.signal(fd)
		v := &mine{1}
		r.ok(r.w.Add(fd, watch.Read, mode, v))
		if e := r.awaitOne(fd, watch.Read); e.Value != any(v) {
			r.Errorf("value %v, want %v", e.Value, v)
		}
		r.ok(r.w.Modify(fd, watch.Read, mode, "two"))
		if e := r.awaitOne(fd, watch.Read); e.Value != any("two") {
			r.Errorf("value %v, want two", e.Value)
		}
		r.ok(r.w.Remove(fd))
	}
}

// modify drops what was found under the old interest, and finds the new.
func modify(r *rig) {
	for _, mode := range everyMode {
		a, b := r.pair()
		r.add(a, watch.Read, mode)
		r.quiet()
		write(r, b, "x")
		r.ok(r.w.Prepare())
		r.ok(r.w.Wait(-1)) // found, and not dispatched
		r.ok(r.w.Modify(a, watch.Write, mode, "new"))
		if e := r.awaitOne(a, watch.Write); e.Events != watch.Write || e.Value != any("new") {
			r.Errorf("%v: %+v", mode, e)
		}
		r.ok(r.w.Modify(a, watch.Read, mode, "back"))
		if e := r.awaitOne(a, watch.Read); e.Events != watch.Read || e.Value != any("back") {
			r.Errorf("%v: %+v", mode, e)
		}
		r.ok(r.w.Remove(a))
	}
}

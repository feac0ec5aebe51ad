// SPDX-License-Identifier: MIT

package watchtest

import (
	"errors"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/watch"
)

// patience is how long a test waits for a required report.
var patience = time.Minute

// rig is a watcher under test, driven by the test's goroutine on one thread.
type rig struct {
	*testing.T
	w   Watcher
	fds map[int]*sys.FD // descriptors that the test opened and has not closed
}

// newRig opens a watcher, which the caller closes.
func newRig(t *testing.T, open func() (Watcher, error)) *rig {
	t.Helper()
	w, err := open()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, w: w, fds: map[int]*sys.FD{}}
	t.Cleanup(func() {
		for _, fd := range r.fds {
			_ = fd.Close()
		}
	})
	return r
}

// on runs a test with a watcher on a locked thread.
func on(test func(r *rig)) func(*testing.T, func() (Watcher, error)) {
	return func(t *testing.T, open func() (Watcher, error)) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		r := newRig(t, open)
		defer func() {
			if err := r.w.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}()
		test(r)
	}
}

func (r *rig) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) want(err error, errno syscall.Errno) {
	r.Helper()
	if !errors.Is(err, errno) {
		r.Errorf("error %v, want %v", err, errno)
	}
}

func (r *rig) add(fd int, interest watch.Events, mode watch.Trigger) {
	r.Helper()
	r.ok(r.w.Add(fd, interest, mode, fd))
}

// turn makes one turn and returns what it reported.
func (r *rig) turn(timeout time.Duration) []watch.Event {
	r.Helper()
	var evs []watch.Event
	n, err := r.w.Poll(timeout, func(e watch.Event) { evs = append(evs, e) })
	r.ok(err)
	if n != len(evs) {
		r.Errorf("Poll returned %d after %d reports", n, len(evs))
	}
	return evs
}

// await makes turns until something is reported.
func (r *rig) await() []watch.Event {
	r.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if evs := r.turn(time.Second); len(evs) > 0 {
			return evs
		}
	}
	r.Fatal("nothing was reported")
	return nil
}

// awaitOne wants the next report to be of fd alone, with all of events.
func (r *rig) awaitOne(fd int, events watch.Events) watch.Event {
	r.Helper()
	evs := r.await()
	if len(evs) != 1 || evs[0].FD != fd || evs[0].Events&events != events {
		r.Fatalf("reports %v, want %v of %d", evs, events, fd)
	}
	return evs[0]
}

// quietTurns is how many turns without a report show that none comes.
const quietTurns = 4

// quiet wants nothing to be reported.
func (r *rig) quiet() {
	r.Helper()
	for range quietTurns {
		if evs := r.turn(0); len(evs) > 0 {
			r.Fatalf("reports %v, want none", evs)
		}
	}
}

// counter opens an eventfd.
func (r *rig) counter() int {
	r.Helper()
	fd, err := sys.Counter()
	r.ok(err)
	r.fds[fd.Int()] = fd
	return fd.Int()
}

// signal makes an eventfd readable.
func (r *rig) signal(fd int) {
	r.Helper()
	write(r, fd, "\x01\x00\x00\x00\x00\x00\x00\x01")
}

func write(r *rig, fd int, s string) {
	r.Helper()
	if n, err := syscall.Write(fd, []byte(s)); n != len(s) || err != nil {
		r.Fatalf("write to %d: %d, %v", fd, n, err)
	}
}

// drain reads all input and returns how much it was.
func (r *rig) drain(fd int) int {
	r.Helper()
	var buf [4096]byte
	total := 0
	for {
		n, err := syscall.Read(fd, buf[:])
		if err == syscall.EINTR {
			continue
		}
		if n <= 0 {
			return total
		}
		total += n
	}
}

// pair opens a pair of sockets that do not block.
func (r *rig) pair() (a, b int) {
	r.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	r.ok(err)
	return r.own(fds[0]), r.own(fds[1])
}

// pipe opens a pipe that does not block.
func (r *rig) pipe() (rd, wr int) {
	r.Helper()
	var fds [2]int
	r.ok(syscall.Pipe2(fds[:], syscall.O_NONBLOCK|syscall.O_CLOEXEC))
	return r.own(fds[0]), r.own(fds[1])
}

// own closes fd when the test ends, unless the test has closed it.
func (r *rig) own(fd int) int {
	r.fds[fd] = sys.NewFD(fd)
	return fd
}

// shut closes a descriptor that the test opened.
func (r *rig) shut(fd int) {
	r.Helper()
	r.ok(r.fds[fd].Close())
	delete(r.fds, fd)
}

// replace closes fd and moves the file of by to its number.
func (r *rig) replace(fd, by int) {
	r.Helper()
	r.ok(syscall.Dup3(by, fd, syscall.O_CLOEXEC))
	r.shut(by)
}

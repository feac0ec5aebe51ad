// SPDX-License-Identifier: MIT

package epoll

import (
	"math"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
)

func TestMillis(t *testing.T) {
	for d, want := range map[time.Duration]int{
		1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, time.Hour: 3600_000, math.MaxInt64: math.MaxInt32,
	} {
		if got := millis(d); got != want {
			t.Errorf("%v: %d ms, want %d", d, got, want)
		}
	}
}

// readable returns an instance, and an eventfd that is readable.
func readable(t *testing.T) (*Instance, int) {
	t.Helper()
	in, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	fd, err := sys.Counter()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fd.Close() })
	if _, err := syscall.Write(fd.Int(), []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	return in, fd.Int()
}

// TestErrors checks the errors that the methods document.
func TestErrors(t *testing.T) {
	in, fd := readable(t)
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const events = syscall.EPOLLIN
	for i, c := range []struct{ got, want syscall.Errno }{
		{in.Modify(fd, events, 1), syscall.ENOENT},
		{in.Remove(fd), syscall.ENOENT},
		{in.Add(fd, events, 1), 0},
		{in.Add(fd, events, 1), syscall.EEXIST},
		{in.Remove(fd), 0},
		{in.Add(int(f.Fd()), events, 1), syscall.EPERM},
		{in.Add(-1, events, 1), syscall.EBADF},
		{in.Modify(-1, events, 1), syscall.EBADF},
		{in.Remove(-1), syscall.EBADF},
	} {
		if c.got != c.want {
			t.Errorf("call %d: %v, want %v", i, c.got, c.want)
		}
	}
	if first, second := in.Close(), in.Close(); first != nil || second == nil {
		t.Errorf("Close: %v, the second time %v", first, second)
	}
}

// TestWait checks which events the ways to wait return, also with timeouts of milliseconds.
func TestWait(t *testing.T) {
	for _, coarse := range []bool{false, true} {
		in, fd := readable(t)
		in.coarse.Store(coarse)
		const data = 1<<63 | 5
		wait := func(what string, timeout time.Duration, want int) {
			t.Helper()
			events := make([]Event, 4)
			n, errno := in.Wait(events, timeout)
			for errno == syscall.EINTR {
				n, errno = in.Wait(events, timeout)
			}
			if n != want || errno != 0 {
				t.Errorf("%s, timeout %v: %d events, %v, want %d", what, timeout, n, errno, want)
			}
			if n > 0 && (events[0].Events != syscall.EPOLLIN || Data(&events[0]) != data) {
				t.Errorf("%s: events %#x, data %#x", what, events[0].Events, Data(&events[0]))
			}
		}
		wait("nothing is watched", 0, 0)
		wait("nothing is watched", time.Microsecond, 0)
		for what, mask := range map[string]uint32{"edge-triggered": EdgeTriggered, "once": OneShot} {
			if errno := in.Add(fd, syscall.EPOLLIN|mask, data); errno != 0 {
				t.Fatal(errno)
			}
			wait(what, -1, 1)
			wait(what+", again", 0, 0)
			if errno := in.Modify(fd, syscall.EPOLLIN, data); errno != 0 {
				t.Fatal(errno)
			}
			wait("level-triggered", time.Hour, 1)
			wait("level-triggered, again", 0, 1)
			if errno := in.Remove(fd); errno != 0 {
				t.Fatal(errno)
			}
		}
	}
}

// SPDX-License-Identifier: MIT

package watch_test

import (
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/watch"
)

// TestLoweredDescriptorLimit lowers RLIMIT_NOFILE below the number of descriptors that stay
// ready: poll(2) then refuses to check them in one call. All of them are still reported.
// Promise: watch/right-error-nothing
func TestLoweredDescriptorLimit(t *testing.T) {
	overBackends(t, func(t *testing.T, b watch.Mode) {
		runtime.LockOSThread() // another thread would need another ring
		defer runtime.UnlockOSThread()
		w, err := watch.New(watch.Options{Mode: b})
		must(t, err)
		defer w.Close()
		const n = 40
		fds := eventfds(t, n)
		makeReadable(t, fds...)
		for _, fd := range fds {
			must(t, w.Add(fd, watch.Read, watch.Level, nil))
		}
		turn := func(reports map[int]int) {
			_, err := w.Poll(time.Minute, func(e watch.Event) { reports[e.FD]++ })
			must(t, err)
		}
		for reports := map[int]int{}; len(reports) < n; {
			turn(reports)
		}

		var limit syscall.Rlimit
		must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
		defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
		lower := limit
		lower.Cur = n / 2
		must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lower))
		const rounds = 30 // more than the turns after which a ring disarms what stays ready
		reports := map[int]int{}
		for range 2 * rounds {
			turn(reports)
		}
		for _, fd := range fds {
			if reports[fd] < rounds {
				t.Errorf("descriptor %d was reported in %d of %d turns", fd, reports[fd], 2*rounds)
			}
		}
		for _, fd := range fds[1:] {
			drain(fd)
		}
		clear(reports)
		for range 2 * rounds {
			turn(reports)
		}
		if reports[fds[0]] < rounds || len(reports) > n {
			t.Errorf("after all but one were read: %v", reports)
		}
		for _, fd := range fds[1:] {
			if reports[fd] > 1 {
				t.Errorf("descriptor %d is reported %d times after it was read", fd, reports[fd])
			}
		}
	})
}

// TestBatchOfOne watches a descriptor that stays ready and one that becomes ready before each
// turn. Neither keeps the other from being reported, also if a turn reports only one.
func TestBatchOfOne(t *testing.T) {
	overBackends(t, func(t *testing.T, b watch.Mode) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		w, err := watch.New(watch.Options{Mode: b, Batch: 1})
		must(t, err)
		defer w.Close()
		fds := eventfds(t, 2)
		makeReadable(t, fds...)
		must(t, w.Add(fds[0], watch.Read, watch.Level, nil))
		must(t, w.Add(fds[1], watch.Read, watch.Edge, nil))
		const turns = 60
		reports := map[int]int{}
		for range turns {
			makeReadable(t, fds[1])
			_, err := w.Poll(time.Minute, func(e watch.Event) { reports[e.FD]++ })
			must(t, err)
		}
		if reports[fds[0]] < turns/4 || reports[fds[1]] < turns/4 {
			t.Errorf("in %d turns: %v, want a quarter of them for each", turns, reports)
		}
	})
}

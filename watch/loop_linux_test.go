// SPDX-License-Identifier: MIT

package watch_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/watch"
)

func newLoop(t *testing.T, b watch.Mode) *watch.Loop {
	t.Helper()
	l, err := watch.NewLoop(watch.Options{Mode: b})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Check(); err != nil {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return l
}

// run runs the loop until it is stopped or has drained.
func run(t *testing.T, l *watch.Loop) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := l.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

// start runs the loop in a goroutine and returns its result.
func start(ctx context.Context, l *watch.Loop) <-chan error {
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	return done
}

// eventfds opens eventfds.
func eventfds(t *testing.T, n int) []int {
	t.Helper()
	var fds []int
	for range n {
		fd, err := sys.Counter()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = fd.Close() })
		fds = append(fds, fd.Int())
	}
	return fds
}

var one = []byte{1, 0, 0, 0, 0, 0, 0, 0}

// makeReadable makes eventfds readable.
func makeReadable(t testing.TB, fds ...int) {
	t.Helper()
	for _, fd := range fds {
		if _, err := syscall.Write(fd, one); err != nil {
			t.Fatal(err)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestLoopDescriptors(t *testing.T) {
	overBackends(t, func(t *testing.T, b watch.Mode) {
		l, fd := newLoop(t, b), eventfds(t, 1)[0]
		var got []watch.Events
		must(t, l.Add(fd, watch.Read, watch.Level, func(e watch.Events) {
			got = append(got, e)
			must(t, l.Check())
			drain(fd)
			if e&watch.Write == 0 {
				must(t, l.Modify(fd, watch.Write, watch.Edge))
				return
			}
			must(t, l.Remove(fd))
			l.Drain()
		}))
		if err := l.Add(fd, watch.Read, watch.Level, func(watch.Events) {}); !errors.Is(err, syscall.EEXIST) {
			t.Errorf("a second Add: %v", err)
		}
		makeReadable(t, fd)
		run(t, l)
		if want := []watch.Events{watch.Read, watch.Write}; !slices.Equal(got, want) {
			t.Errorf("events %v, want %v", got, want)
		}
		if err := l.Modify(fd, watch.Read, watch.Level); !errors.Is(err, syscall.ENOENT) {
			t.Errorf("Modify after Remove: %v", err)
		}
		if name, _ := l.Backend(); name != b.String() || l.Len() != 0 {
			t.Errorf("backend %s, %d descriptors", name, l.Len())
		}
	})
}

// TestLoopNeighbours lets callbacks remove each other and themselves, and reopen the
// numbers as other files.
// Promise: watch/removed-descriptor-s
func TestLoopNeighbours(t *testing.T) {
	seeds := uint64(30)
	if testing.Short() {
		seeds = 5
	}
	overBackends(t, func(t *testing.T, b watch.Mode) {
		for seed := range seeds {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				n := &neighbours{T: t, l: newLoop(t, b), rng: rand.New(rand.NewPCG(seed, 9)), fds: eventfds(t, 24)}
				n.gens = make([]int, len(n.fds))
				for i := range n.fds {
					n.add(i)
				}
				for range 60 {
					n.round()
				}
				if n.calls < 100 {
					t.Errorf("%d calls are too few", n.calls)
				}
			})
		}
	})
}

type neighbours struct {
	*testing.T
	l     *watch.Loop
	rng   *rand.Rand
	fds   []int
	gens  []int // of the registration, negative when there is none
	calls int
}

func (n *neighbours) add(i int) {
	if n.gens[i] < 0 {
		n.gens[i] = -n.gens[i]
	}
	n.gens[i]++
	gen, mode := n.gens[i], watch.Trigger(n.rng.IntN(3))
	must(n.T, n.l.Add(n.fds[i], watch.Read, mode, func(watch.Events) {
		if n.gens[i] != gen {
			n.Fatalf("a removed registration of descriptor %d was called", n.fds[i])
		}
		n.calls++
		drain(n.fds[i])
		if mode == watch.OneShot {
			must(n.T, n.l.Modify(n.fds[i], watch.Read, mode))
		}
		for range n.rng.IntN(4) {
			n.disturb(n.rng.IntN(len(n.fds)))
		}
		if n.rng.IntN(4) == 0 {
			n.disturb(i)
		}
		must(n.T, n.l.Check())
	}))
}

func (n *neighbours) disturb(i int) {
	if n.gens[i] < 0 {
		n.add(i)
		return
	}
	must(n.T, n.l.Remove(n.fds[i]))
	n.gens[i] = -n.gens[i]
	if n.rng.IntN(2) == 0 {
		must(n.T, syscall.Dup3(eventfds(n.T, 1)[0], n.fds[i], syscall.O_CLOEXEC))
	}
	if n.rng.IntN(2) == 0 {
		n.add(i)
	}
}

// round makes some descriptors ready and checks that the loop calls their functions until
// none is ready.
func (n *neighbours) round() {
	for range 1 + n.rng.IntN(12) {
		makeReadable(n.T, n.fds[n.rng.IntN(len(n.fds))])
	}
	for quiet := 0; quiet < 3; {
		before := n.calls
		stop := n.l.AfterFunc(0, func() {}) // so that the iteration does not sleep
		must(n.T, n.l.Turn())
		stop.Stop()
		if quiet++; n.calls != before {
			quiet = 0
		}
	}
	for i, fd := range n.fds {
		var buf [8]byte
		if m, _ := syscall.Read(fd, buf[:]); m > 0 && n.gens[i] > 0 {
			n.Fatalf("descriptor %d is ready and was not called for", fd)
		}
	}
}

func TestLoopPost(t *testing.T) {
	overBackends(t, func(t *testing.T, b watch.Mode) {
		l := newLoop(t, b)
		const senders, each = 8, 1000
		var last [senders]int
		left := senders * each
		var wg sync.WaitGroup
		for s := range senders {
			wg.Go(func() {
				for i := range each {
					err := l.Post(func() {
						if last[s] != i {
							t.Errorf("sender %d: call %d, want %d", s, i, last[s])
						}
						last[s]++
						if left--; left == 0 {
							l.Stop()
						}
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		run(t, l)
		wg.Wait()
		if left != 0 {
			t.Errorf("%d calls are missing", left)
		}
	})
}

// TestLoopFair has functions and timers that post or set themselves again, and checks that
// an event is still handled.
func TestLoopFair(t *testing.T) {
	overBackends(t, func(t *testing.T, b watch.Mode) {
		l, fd := newLoop(t, b), eventfds(t, 1)[0]
		var post func()
		posts := 0
		post = func() {
			if posts++; posts == 3 {
				makeReadable(t, fd)
			}
			must(t, l.Post(post))
		}
		must(t, l.Post(post))
		var again *watch.Timer
		again = l.AfterFunc(0, func() { again.Reset(0) })
		must(t, l.Add(fd, watch.Read, watch.Edge, func(watch.Events) { l.Stop() }))
		run(t, l)
		must(t, l.Remove(fd))
	})
}

func TestLoopIdle(t *testing.T) {
	overBackends(t, func(t *testing.T, b watch.Mode) {
		l, fd := newLoop(t, b), eventfds(t, 1)[0]
		var log []string
		must(t, l.Add(fd, watch.Read, watch.Level, func(watch.Events) {
			log = append(log, "event")
			drain(fd)
		}))
		var more, last *watch.Hook
		more = l.OnIdle(func() bool {
			log = append(log, "more")
			must(t, l.Check())
			return len(log) < 3
		})
		last = l.OnIdle(func() bool {
			log = append(log, "last")
			if len(log) > 8 {
				last.Remove()
				must(t, l.Remove(fd))
				l.Drain()
			} else if len(log) > 5 {
				more.Remove()
				makeReadable(t, fd)
			} else if len(log) > 3 {
				l.AfterFunc(time.Millisecond, func() { makeReadable(t, fd) })
			}
			return false
		})
		run(t, l)
		want := []string{"more", "last", "more", "last", "event", "more", "last", "event", "last"}
		if !slices.Equal(log[:min(len(log), len(want))], want) {
			t.Errorf("calls %v, want %v", log, want)
		}
	})
}

// Promise: watch/stop-close-end
func TestLoopSignals(t *testing.T) {
	overBackends(t, func(t *testing.T, b watch.Mode) {
		l := newLoop(t, b)
		var usr1, usr2 *watch.Hook
		calls := 0
		usr1 = l.OnSignal(syscall.SIGUSR1, func() {
			if calls++; calls < 3 {
				must(t, syscall.Kill(os.Getpid(), syscall.SIGUSR1))
				return
			}
			usr1.Remove()
			usr1.Remove()
			must(t, syscall.Kill(os.Getpid(), syscall.SIGUSR2))
		})
		usr2 = l.OnSignal(syscall.SIGUSR2, l.Drain)
		must(t, syscall.Kill(os.Getpid(), syscall.SIGUSR1))
		run(t, l)
		if calls != 3 {
			t.Errorf("%d signals, want 3", calls)
		}
		must(t, l.Close())
		usr2.Remove() // ended by Close
		signal.Ignore(syscall.SIGUSR1)
		defer signal.Reset(syscall.SIGUSR1)
		h := l.OnSignal(syscall.SIGUSR1, func() {})
		if !signal.Ignored(syscall.SIGUSR1) {
			t.Error("a closed loop takes a signal")
		}
		h.Remove()
	})
}

// Promise: watch/stop-close-end
func TestLoopEnds(t *testing.T) {
	overBackends(t, func(t *testing.T, b watch.Mode) {
		l, fd := newLoop(t, b), eventfds(t, 1)[0]
		l.Stop() // a Stop before Run counts
		run(t, l)

		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		done := start(ctx, l)
		sleeps(t, l)
		if err := l.Run(t.Context()); err == nil {
			t.Error("two goroutines run the loop")
		}
		cancel(cause)
		if err := <-done; err != cause {
			t.Errorf("Run returned %v, want the cause", err)
		}

		must(t, l.Add(fd, watch.Read, watch.Level, func(watch.Events) { must(t, l.Remove(fd)) }))
		done = start(t.Context(), l)
		sleeps(t, l)
		l.Drain()
		sleeps(t, l) // a descriptor is still registered
		select {
		case err := <-done:
			t.Fatalf("drained with a descriptor left: %v", err)
		default:
		}
		makeReadable(t, fd)
		must(t, <-done)

		done = start(t.Context(), l)
		sleeps(t, l)
		must(t, l.Close())
		if err := <-done; !errors.Is(err, watch.ErrClosed) {
			t.Errorf("Run returned %v after Close", err)
		}
		for what, err := range map[string]error{
			"Post":   l.Post(func() {}),
			"Run":    l.Run(t.Context()),
			"Add":    l.Add(fd, watch.Read, watch.Level, func(watch.Events) {}),
			"Remove": l.Remove(fd),
		} {
			if !errors.Is(err, os.ErrClosed) {
				t.Errorf("%s on a closed loop: %v", what, err)
			}
		}
	})
}

// sleeps waits until the running loop has called a posted function.
func sleeps(t *testing.T, l *watch.Loop) {
	t.Helper()
	done := make(chan struct{})
	must(t, l.Post(func() { close(done) }))
	<-done
}

// TestLoopClosedInCallback checks that no callback follows the one that closes the loop.
// Promise: watch/stop-close-end
func TestLoopClosedInCallback(t *testing.T) {
	overBackends(t, func(t *testing.T, b watch.Mode) {
		l := newLoop(t, b)
		calls := 0
		end := func() {
			calls++
			must(t, l.Close())
		}
		fds := eventfds(t, 3)
		makeReadable(t, fds...)
		for _, fd := range fds {
			must(t, l.Add(fd, watch.Read, watch.Level, func(watch.Events) { end() }))
		}
		l.AfterFunc(0, end)
		must(t, l.Post(end))
		l.OnIdle(func() bool { end(); return true })
		if err := l.Run(t.Context()); !errors.Is(err, watch.ErrClosed) || calls != 1 {
			t.Errorf("Run returned %v after %d calls, want one", err, calls)
		}
	})
}

// TestLoopPanics lets each kind of callback panic and checks that the next Run calls the
// others.
// Promise: watch/stop-close-end
func TestLoopPanics(t *testing.T) {
	overBackends(t, func(t *testing.T, b watch.Mode) {
		l := newLoop(t, b)
		calls := 0
		call := func() {
			if calls++; calls%2 == 1 {
				panic("on purpose")
			}
		}
		fds := eventfds(t, 2)
		makeReadable(t, fds...)
		for _, fd := range fds {
			must(t, l.Add(fd, watch.Read, watch.Level, func(watch.Events) {
				must(t, l.Remove(fd))
				call()
			}))
		}
		for range 2 {
			l.AfterFunc(0, call)
			must(t, l.Post(call))
		}
		l.Drain()
		panics := 0
		for calls < 6 {
			func() {
				defer func() {
					if recover() != nil {
						panics++
					}
					must(t, l.Check())
				}()
				run(t, l)
			}()
		}
		if calls != 6 || panics != 3 {
			t.Errorf("got %d calls and %d panics, want 6 and 3", calls, panics)
		}
	})
}

func TestLoopAllocs(t *testing.T) {
	overBackends(t, func(t *testing.T, b watch.Mode) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		l, fds := newLoop(t, b), eventfds(t, 10)
		calls, buf := 0, make([]byte, 8)
		for i, fd := range fds {
			must(t, l.Add(fd, watch.Read, watch.Trigger(i%2), func(watch.Events) {
				calls++
				_, _ = syscall.Read(fd, buf)
			}))
		}
		timer := l.NewTimer(func() { calls++ })
		posted := func() { calls++ }
		turn := func() {
			makeReadable(t, fds...)
			timer.Reset(0)
			must(t, l.Post(posted))
			must(t, l.Turn())
		}
		for range 100 {
			turn() // buffers grow to their final size
		}
		calls = 0
		if n := ringtest.Allocations(200, turn); n > 0 {
			t.Errorf("%v allocations per turn", n)
		}
		if calls < 200*11 {
			t.Errorf("%d calls are too few", calls)
		}
	})
}

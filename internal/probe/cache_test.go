// SPDX-License-Identifier: MIT

package probe_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/probe"
)

func newCache() *probe.Cache[string, int] {
	return &probe.Cache[string, int]{Conclusive: func(err error) bool {
		return err == nil || errors.Is(err, errors.ErrUnsupported)
	}}
}

func TestCacheKeepsConclusiveAnswersOnly(t *testing.T) {
	tests := []struct {
		name string
		err  error
		asks int // after three calls
	}{
		{"yes", nil, 1},
		{"unsupported", errors.ErrUnsupported, 1},
		{"ENOSYS", syscall.ENOSYS, 1},
		{"EMFILE", syscall.EMFILE, 3},
		{"EAGAIN", syscall.EAGAIN, 3},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := newCache()
			asks := 0
			for range 3 {
				v, err := c.Get("key", func() (int, error) { asks++; return 7, test.err })
				if v != 7 || !errors.Is(err, test.err) {
					t.Fatalf("got %d, %v; want 7, %v", v, err, test.err)
				}
			}
			if asks != test.asks {
				t.Errorf("the function ran %d times, want %d", asks, test.asks)
			}
		})
	}
}

func TestCacheRecovers(t *testing.T) {
	c := newCache()
	if _, err := c.Get("key", func() (int, error) { return 0, syscall.EMFILE }); err != syscall.EMFILE {
		t.Fatal(err)
	}
	if v, err := c.Get("key", func() (int, error) { return 1, nil }); v != 1 || err != nil {
		t.Fatalf("got %d, %v after the descriptors came back", v, err)
	}
	if v, err := c.Get("key", func() (int, error) { return 2, syscall.EMFILE }); v != 1 || err != nil {
		t.Fatalf("got %d, %v; the success was not cached", v, err)
	}
}

func TestCacheKeepsKeysApart(t *testing.T) {
	c := newCache()
	for i, key := range []string{"a", "b", "a", "b"} {
		v, _ := c.Get(key, func() (int, error) {
			inner, _ := c.Get("inner", func() (int, error) { return 100, nil }) // must not deadlock
			return inner + i, nil
		})
		if want := 100 + i%2; v != want {
			t.Errorf("call %d for %q: got %d, want %d", i, key, v, want)
		}
	}
}

func TestCacheRunsOneProbeAtATime(t *testing.T) {
	c := newCache()
	var asking, asks atomic.Int32
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			v, err := c.Get("key", func() (int, error) {
				if asking.Add(1) > 1 {
					t.Error("two calls of the function at the same time")
				}
				defer asking.Add(-1)
				if asks.Add(1) < 3 {
					return 0, syscall.EAGAIN
				}
				return 5, nil
			})
			if err == nil && v != 5 {
				t.Errorf("got %d", v)
			}
		})
	}
	all.Wait()
	if n := asks.Load(); n != 3 {
		t.Errorf("the function ran %d times, want 3: two inconclusive results and the one that is cached", n)
	}
}

func TestCacheSurvivesPanic(t *testing.T) {
	c := newCache()
	func() {
		defer func() { _ = recover() }()
		_, _ = c.Get("key", func() (int, error) { panic("boom") })
	}()
	if v, err := c.Get("key", func() (int, error) { return 3, nil }); v != 3 || err != nil {
		t.Errorf("got %d, %v", v, err)
	}
}

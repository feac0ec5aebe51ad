// SPDX-License-Identifier: MIT

package watch_test

import (
	"errors"
	"os"
	"testing"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/watch"
	"github.com/ringside-io/ringside/watch/watchtest"
)

func TestMain(m *testing.M) { os.Exit(ringtest.Main(m)) }

// overBackends runs test for each backend that the system has.
func overBackends(t *testing.T, test func(t *testing.T, b watch.Mode)) {
	for _, b := range []watch.Mode{watch.ModeEpoll, watch.ModeRing} {
		t.Run(b.String(), func(t *testing.T) {
			need(t, b)
			test(t, b)
		})
	}
}

// need skips a test of a backend that the system does not have.
func need(t *testing.T, b watch.Mode) {
	t.Helper()
	w, err := watch.New(watch.Options{Mode: b})
	if err == nil {
		w.Close()
		return
	}
	if b == watch.ModeRing {
		ringtest.NeedKernel(t, "deferred task work", "6.1")
	}
	if errors.Is(err, features.ErrForbidden) || errors.Is(err, errors.ErrUnsupported) {
		t.Skipf("needs %v: %v", b, err)
	}
	t.Fatal(err)
}

// Promise: watch/backends-behave-alike
// Promise: watch/close-thread-waited
// Promise: watch/descriptor-becomes-ready
// Promise: watch/descriptor-closed-before
// Promise: watch/wake-close-end
func TestSuite(t *testing.T) {
	overBackends(t, func(t *testing.T, b watch.Mode) {
		watchtest.Run(t, func() (watchtest.Watcher, error) { return watch.New(watch.Options{Mode: b, Restrict: true}) })
	})
}

// SPDX-License-Identifier: MIT

// Package watchtest is the test suite of package watch's contract. It tests any watcher,
// whatever its backend, so that all backends behave the same.
package watchtest

import (
	"testing"
	"time"

	"github.com/ringside-io/ringside/watch"
)

// Watcher has the methods of *watch.Watcher whose contract the suite checks.
type Watcher interface {
	Add(fd int, interest watch.Events, trigger watch.Trigger, value any) error
	Modify(fd int, interest watch.Events, trigger watch.Trigger, value any) error
	Remove(fd int) error
	Len() int
	Prepare() error
	Wait(timeout time.Duration) error
	Dispatch(f func(watch.Event)) int
	Poll(timeout time.Duration, f func(watch.Event)) (int, error)
	Wake()
	Close() error
}

var _ Watcher = (*watch.Watcher)(nil)

// Run runs the suite. Each test calls open for its watchers and closes them. The suite
// opens many descriptors, as far as the limit of the process allows, and sends signals
// to the threads that it starts.
func Run(t *testing.T, open func() (Watcher, error)) {
	for _, group := range suite {
		t.Run(group.name, func(t *testing.T) {
			for _, c := range group.cases {
				t.Run(c.name, func(t *testing.T) { c.run(t, open) })
			}
		})
	}
}

type group struct {
	name  string
	cases []testCase
}

type testCase struct {
	name string
	run  func(t *testing.T, open func() (Watcher, error))
}

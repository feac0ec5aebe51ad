// SPDX-License-Identifier: MIT

package workload

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/watch"
)

// Sources of the events that [Watch] measures.
const (
	// SourceEventFD are eventfds that are all signaled, awaited and read.
	SourceEventFD = "eventfd"
	// SourcePair are pairs of sockets, each with one message on its way: what one end receives it
	// sends back.
	SourcePair = "socketpair"
	// SourceWake is another goroutine that wakes the one that waits.
	SourceWake = "wake"
)

// maxWatched bounds the descriptors of each kind.
const maxWatched = 1 << 20

// Watch is what package watch takes for an event: the time of rounds that get events, beside that of
// the same writes and reads on unwatched descriptors. Of eventfds it is net of these. Of
// pairs of sockets it is not: their writes and reads allocate memory, and from one process to the
// next vary by as much as watching takes.
type Watch struct {
	Source string `json:"source"`
	// Mode is how descriptors are watched, Active how many of them (or pairs) have an event in
	// each round, Idle how many eventfds never have one. A wake has none of the three.
	Mode   watch.Trigger `json:"mode"`
	Active int           `json:"active"`
	Idle   int           `json:"idle"`
	// Among spreads the idle evenly between the active, by number and in memory.
	Among bool `json:"among,omitempty"`
}

// Descriptors is how many of them the workload opens for one watcher, without the watcher's own.
func (w Watch) Descriptors() int { return w.descriptors(1) }

// descriptors counts the watched ones of each watcher, the unwatched ones, and the idle.
func (w Watch) descriptors(watchers int) int {
	switch w.Source {
	case SourceEventFD:
		return (watchers+1)*w.Active + w.Idle
	case SourcePair:
		return 2*(watchers+1)*w.Active + w.Idle
	}
	return 0
}

func (w Watch) check() error {
	switch w.Source {
	case SourceWake:
		return nil
	case SourceEventFD, SourcePair:
	default:
		return fmt.Errorf("unknown source of events %q", w.Source)
	}
	switch {
	case w.Mode > watch.OneShot:
		return fmt.Errorf("unknown mode %d", w.Mode)
	case w.Active < 1 || w.Active > maxWatched || w.Idle < 0 || w.Idle > maxWatched:
		return fmt.Errorf("%d active and %d idle descriptors: must be 1 to %d, and 0 to %[3]d", w.Active, w.Idle, maxWatched)
	}
	return nil
}

// backend is the mechanism that a job names as its engine.
func (j Job) backend() (watch.Mode, error) {
	b, err := watch.ParseMode(j.Engine)
	if err == nil && b == watch.ModeAuto {
		err = fmt.Errorf("engine %q: must be %v or %v", j.Engine, watch.ModeEpoll, watch.ModeRing)
	}
	return b, err
}

// ProbeWatch reports whether this process can watch with the engine, "epoll" or "io_uring".
func ProbeWatch(engine string) error {
	b, err := Job{Engine: engine}.backend()
	if err != nil {
		return err
	}
	w, err := watch.New(watch.Options{Mode: b})
	if err != nil {
		return err
	}
	return w.Close()
}

// watch runs the round in a goroutine that keeps its thread: that is where a watcher belongs.
func (j Job) watch(ctx context.Context) (measure.Sample, error) {
	if err := j.Watch.check(); err != nil {
		return measure.Sample{}, err
	}
	b, err := j.backend()
	if err != nil {
		return measure.Sample{}, err
	}
	if j.Watch.Source == SourceWake {
		return j.wakes(ctx, b)
	}
	return j.events(ctx, b)
}

// events measures rounds and their floor in turns.
func (j Job) events(ctx context.Context, b watch.Mode) (s measure.Sample, err error) {
	var t *watchTurns
	closeAll := func() error { return nil }
	defer func() { err = errors.Join(err, closeAll()) }()
	op := func() (int, error) {
		if t == nil {
			runtime.LockOSThread()
			var err error
			if t, closeAll, err = j.Watch.open(b); err != nil {
				return 0, err
			}
		}
		return 0, t.turn()
	}
	plan := measure.Plan{
		Goroutines: 1, Warm: j.Warm, Measure: j.Measure,
		Between: func() error {
			if t != nil { // The warm-up may have been too short for a turn.
				t.reset()
			}
			return nil
		},
	}
	s, err = measure.Run(ctx, plan, func(int) (measure.Op, error) { return op, nil })
	if err != nil {
		return measure.Sample{}, err
	}
	err = t.report(0, &s)
	s.Backend, s.Reason = t.backends[0]()
	return s, err
}

// wakes measures wakes one by one.
func (j Job) wakes(ctx context.Context, b watch.Mode) (s measure.Sample, err error) {
	var l *wakeLoop
	defer func() {
		if l != nil {
			err = errors.Join(err, l.close())
		}
	}()
	op := func() (int, error) {
		if l == nil {
			runtime.LockOSThread()
			var err error
			if l, err = newWakeLoop(b); err != nil {
				return 0, err
			}
		}
		return 0, l.round()
	}
	plan := measure.Plan{Goroutines: 1, Warm: j.Warm, Measure: j.Measure}
	s, err = measure.Run(ctx, plan, func(int) (measure.Op, error) { return op, nil })
	if err != nil {
		return measure.Sample{}, err
	}
	s.Backend, s.Reason = l.watcher.Backend()
	return s, nil
}

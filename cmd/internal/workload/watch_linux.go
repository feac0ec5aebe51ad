// SPDX-License-Identifier: MIT

package workload

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/watch"
)

// open opens the descriptors, and a watcher for each backend. The watchers belong to the calling
// thread. It returns their rounds, and a function that closes everything. All watchers watch the
// idle descriptors, which never have events.
func (w Watch) open(backends ...watch.Mode) (*watchTurns, func() error, error) {
	s := &watchSet{}
	if err := s.openAll(w, len(backends)); err != nil {
		return nil, s.close, errors.Join(err, fmt.Errorf("of %d descriptors", w.descriptors(len(backends))))
	}
	t := newWatchTurns(w.Active, s.floor(w))
	t.whole = w.Source == SourcePair
	for i, b := range backends {
		l, err := s.newLoop(w, b, s.busy[i])
		if err != nil {
			return nil, s.close, err
		}
		t.add(l.round, l.watcher.Backend)
	}
	return t, s.close, nil
}

// watchSet is everything that a workload has open.
type watchSet struct {
	watchers []*watch.Watcher
	// bare are the descriptors of the floor. busy are those of each watcher.
	bare []int
	busy [][]int
	idle []int
}

// openAll interleaves the descriptors of the floor and of the watchers, so that both have the same
// distances in memory.
func (s *watchSet) openAll(w Watch, watchers int) error {
	s.busy = make([][]int, watchers)
	lists := []*[]int{&s.bare}
	for i := range s.busy {
		lists = append(lists, &s.busy[i])
	}
	for range w.Active {
		for _, list := range lists {
			if err := openActive(w.Source, list); err != nil {
				return err
			}
		}
		if w.Among {
			if err := openEventFDs(w.Idle/w.Active, &s.idle); err != nil {
				return err
			}
		}
	}
	return openEventFDs(w.Idle-len(s.idle), &s.idle)
}

func openActive(source string, list *[]int) error {
	if source == SourceEventFD {
		return openEventFDs(1, list)
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a pair of sockets: %w", err)
	}
	*list = append(*list, ends[:]...)
	return nil
}

func openEventFDs(n int, list *[]int) error {
	for range n {
		fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
		if err != nil {
			return fmt.Errorf("open an eventfd: %w", err)
		}
		*list = append(*list, fd)
	}
	return nil
}

func (s *watchSet) close() error {
	var errs []error
	for _, w := range s.watchers {
		errs = append(errs, w.Close())
	}
	for _, fd := range slices.Concat(s.bare, slices.Concat(s.busy...), s.idle) {
		errs = append(errs, unix.Close(fd))
	}
	return errors.Join(errs...)
}

// newLoop opens a watcher and adds the descriptors.
func (s *watchSet) newLoop(w Watch, b watch.Mode, busy []int) (*watchLoop, error) {
	watcher, err := watch.New(watch.Options{Mode: b})
	if err != nil {
		return nil, err
	}
	s.watchers = append(s.watchers, watcher)
	fds := slices.Concat(busy, s.idle)
	if w.Among {
		slices.Sort(fds)
	}
	for _, fd := range fds {
		if err := watcher.Add(fd, watch.Read, w.Mode, nil); err != nil {
			return nil, fmt.Errorf("watch a descriptor: %w", err)
		}
	}
	// Register the descriptors with the kernel before anything is measured.
	if _, err := watcher.Poll(0, func(watch.Event) {}); err != nil {
		return nil, err
	}
	l := &watchLoop{watcher: watcher, oneShot: w.Mode == watch.OneShot, events: w.Active}
	l.found = l.answer
	if w.Source == SourceEventFD {
		l.signal = busy
		return l, nil
	}
	l.reply = true
	return l, l.io.writeTo(firstEnds(busy))
}

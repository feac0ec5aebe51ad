// SPDX-License-Identifier: MIT

package workload

import "github.com/ringside-io/ringside/watch"

// wakeLoop waits in one goroutine and is woken by another, each time that it asks for it.
type wakeLoop struct {
	watcher *watch.Watcher
	ask     chan struct{}
	ended   chan struct{}
}

func newWakeLoop(b watch.Mode) (*wakeLoop, error) {
	w, err := watch.New(watch.Options{Mode: b})
	if err != nil {
		return nil, err
	}
	l := &wakeLoop{watcher: w, ask: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		for range l.ask {
			w.Wake()
		}
	}()
	return l, nil
}

// round asks for a wake and waits for it.
func (l *wakeLoop) round() error {
	l.ask <- struct{}{}
	_, err := l.watcher.Poll(-1, func(watch.Event) {})
	return err
}

func (l *wakeLoop) close() error {
	close(l.ask)
	<-l.ended
	return l.watcher.Close()
}

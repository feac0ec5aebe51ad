// SPDX-License-Identifier: MIT

package reactor

import (
	"runtime"
	"time"
)

// token tells one goroutine of those that wait. Leaving one is possible under
// any lock.
type token chan struct{}

func newToken() token { return make(token, 1) }

// put leaves the token, if it is not there already.
func (t token) put() {
	select {
	case t <- struct{}{}:
	default:
	}
}

// makeRoomFor is makeRoom for operations that start. They must not when the loop
// has been shut meanwhile: nobody would cancel them.
func (l *loop) makeRoomFor(n int) error {
	if err := l.makeRoom(n); err != nil {
		return err
	}
	return l.refuse()
}

// makeRoomAgain is makeRoom for operations that have been accepted before, which
// a loop that is only drained still carries out.
func (l *loop) makeRoomAgain(n int) error {
	err := l.makeRoom(n)
	if err == nil && l.closing {
		err = ErrClosed
	}
	return err
}

// makeRoom sees to it that n entries fit, at most as many as the queue has. The
// caller holds mu, which is let go while the kernel refuses entries, and does
// not hold reaping: room may come from there. On a pinned loop only the thread
// may call it.
func (l *loop) makeRoom(n int) error {
	for l.lacks(n) {
		if l.opts.Pinned {
			l.enterNow()
		} else {
			l.flush()
		}
		if l.lacks(n) {
			l.awaitRoom(n)
		}
	}
	if l.gone {
		return ErrClosed
	}
	return l.failed
}

// lacks reports whether there is no room for n entries now, but may be later. The
// caller holds mu.
func (l *loop) lacks(n int) bool {
	return l.failed == nil && !l.gone && l.ring.SQSpace() < n
}

// awaitRoom waits while the kernel does not take entries. The caller holds mu,
// which is let go.
func (l *loop) awaitRoom(n int) {
	l.mu.Unlock()
	reaped := l.reapAll() // too many completions may be the reason
	if !reaped && !l.opts.Pinned && !l.refused.Load() {
		runtime.Gosched() // the kernel's thread takes them
	}
	l.mu.Lock()
	if reaped || !l.lacks(n) {
		return
	}
	if l.opts.Pinned {
		l.pause()
	} else if l.refused.Load() {
		l.space.Wait()
	}
}

// retryPause is how long the kernel, which has refused entries, is left alone.
const retryPause = time.Millisecond

// refusal remembers that the kernel does not take entries for now: it is out
// of memory for requests, or too many completions wait. Whoever reaps flushes
// again, and so does a timer, because nothing may be left to be reaped. The
// caller holds mu.
func (l *loop) refusal() {
	l.setRefused(true)
	if !l.retrying {
		l.retrying = true
		time.AfterFunc(retryPause, l.retry)
	}
}

// setRefused is refused.Store, cheaper where nothing changes. The caller holds
// mu.
func (l *loop) setRefused(now bool) {
	if l.refused.Load() != now {
		l.refused.Store(now)
	}
}

// retry is what the timer does.
func (l *loop) retry() {
	l.mu.Lock()
	l.retrying = false
	l.mu.Unlock()
	l.resume()
	l.reap()
}

// resume flushes what the kernel refused before.
func (l *loop) resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused.Load() {
		l.flush()
	}
}

// SPDX-License-Identifier: MIT

package reactor

import (
	"runtime"
	"strings"
)

// goroutineID returns what the runtime calls the goroutine in its traces. It is
// slow, and good for nothing but finding misuse.
func goroutineID() string {
	var buf [64]byte
	head, _, _ := strings.Cut(string(buf[:runtime.Stack(buf[:], false)]), "[")
	return head
}

// mayWait panics when the caller is a callback of this pinned loop: it would
// wait for what only its own thread can bring.
func (l *loop) mayWait() {
	if c := &l.calls; c.thread != 0 && c.running.Load() && threadID() == c.thread {
		panic("reactor: a callback of a pinned loop waits for an operation, and so for itself: use Queue")
	}
}

// mayClose panics when the caller is a callback of this loop.
func (l *loop) mayClose(goroutine string) {
	l.calls.mu.Lock()
	runner := l.calls.runner
	l.calls.mu.Unlock()
	if runner == goroutine {
		panic("reactor: a callback calls Close, which waits for the callbacks")
	}
}

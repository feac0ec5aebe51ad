// SPDX-License-Identifier: MIT

package watch

import "time"

// Turn makes one turn of a loop that does not run.
func (l *Loop) Turn() error { return l.turn() }

// SetClock replaces the time of a loop. sleep stands for the passing of time: the
// loop itself then only looks for events.
func (l *Loop) SetClock(now func() time.Duration, sleep func(time.Duration)) {
	l.now = now
	l.wait = func(d time.Duration) error {
		sleep(d)
		return l.w.Wait(0)
	}
}

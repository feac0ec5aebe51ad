// SPDX-License-Identifier: MIT

package watch

import "time"

// Turn runs one iteration of a loop that is not running.
func (l *Loop) Turn() error { return l.turn() }

// SetClock replaces the clock of a loop. sleep replaces waiting: the loop itself then only
// checks for events.
func (l *Loop) SetClock(now func() time.Duration, sleep func(time.Duration)) {
	l.now = now
	l.wait = func(d time.Duration) error {
		sleep(d)
		return l.w.Wait(0)
	}
}

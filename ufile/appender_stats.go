// SPDX-License-Identifier: MIT

package ufile

import "time"

// AppenderStats count what an [Appender] did since it was opened.
type AppenderStats struct {
	Records      uint64 // appended
	Bytes        uint64 // of the records, without their headers
	Groups       uint64 // writes that served one or more appends
	LargestGroup int    // appends served by one write
	Syncs        uint64
	SyncTime     time.Duration // spent in syncs
	LongestSync  time.Duration
	Rotations    uint64
	Waiting      int // appends that wait for a group now
}

// Stats returns the counters.
func (a *Appender) Stats() AppenderStats {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.stats
	s.Waiting = int(a.queued.Load())
	return s
}

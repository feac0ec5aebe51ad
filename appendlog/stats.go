// SPDX-License-Identifier: MIT

package appendlog

import "time"

// Stats count what an [Log] did since it was opened.
type Stats struct {
	Records      uint64        `json:"records"`      // appended
	Bytes        uint64        `json:"bytes"`        // of the records, without their headers
	Groups       uint64        `json:"groups"`       // writes that served one or more appends
	LargestGroup int           `json:"largestGroup"` // appends served by one write
	Syncs        uint64        `json:"syncs"`
	SyncTime     time.Duration `json:"syncTime"` // spent in syncs
	LongestSync  time.Duration `json:"longestSync"`
	Rotations    uint64        `json:"rotations"`
	Waiting      int           `json:"waiting"` // appends that wait for a group now
}

// Stats returns the counters.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Waiting = l.queue.Len()
	return s
}

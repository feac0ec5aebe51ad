// SPDX-License-Identifier: MIT

package backup

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Stats are the counters of a Backup.
type Stats struct {
	Databases  int           `json:"databases"`  // that were open at some time
	Behind     int           `json:"behind"`     // of Databases: with commits that the target lacks
	Lag        time.Duration `json:"lag"`        // age of the oldest commit that the target lacks
	LongestLag time.Duration `json:"longestLag"` // the longest time from a commit to its object so far
	Objects    uint64        `json:"objects"`    // stored
	Bytes      uint64        `json:"bytes"`      // stored
	Requests   uint64        `json:"requests"`   // Put, Get, List and Delete
	Failures   uint64        `json:"failures"`   // of requests, which were repeated
	Memory     int           `json:"memory"`     // bytes that wait for the target
	Error      string        `json:"error,omitempty"`
}

// Plus returns the sum of the counters of two Backups. Lag and LongestLag are the longer of both, and Error is the first.
func (s Stats) Plus(t Stats) Stats {
	return Stats{
		Databases: s.Databases + t.Databases, Behind: s.Behind + t.Behind, Lag: max(s.Lag, t.Lag),
		LongestLag: max(s.LongestLag, t.LongestLag), Objects: s.Objects + t.Objects, Bytes: s.Bytes + t.Bytes,
		Requests: s.Requests + t.Requests, Failures: s.Failures + t.Failures, Memory: s.Memory + t.Memory,
		Error: cmp.Or(s.Error, t.Error),
	}
}

// Status is the state of the backup of a database.
type Status struct {
	Name    string        `json:"name"`
	TXID    uint64        `json:"txid"` // newest transaction in the target; 0 if it is not known
	Lag     time.Duration `json:"lag"`  // age of the oldest commit that the target lacks; 0: it has all
	Last    time.Time     `json:"last"` // when the newest object was stored
	Error   string        `json:"error,omitempty"`
	waiting bool
}

type counts struct {
	objects, bytes, requests, failures atomic.Uint64
	longest                            atomic.Int64
}

func (c *counts) lag(d time.Duration) {
	for {
		old := c.longest.Load()
		if int64(d) <= old || c.longest.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

// Stats returns the counters. Alert on Lag: more than a few intervals means that the target fails, and Error has the
// reason.
func (b *Backup) Stats() Stats {
	s := Stats{
		LongestLag: time.Duration(b.counts.longest.Load()), Objects: b.counts.objects.Load(), Bytes: b.counts.bytes.Load(),
		Requests: b.counts.requests.Load(), Failures: b.counts.failures.Load(), Memory: int(b.memory.Load()),
	}
	for _, d := range b.Databases() {
		s.Databases++
		if d.waiting {
			s.Behind++
		}
		s.Lag = max(s.Lag, d.Lag)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed != nil {
		s.Error = b.failed.Error()
	}
	return s
}

// Databases returns the state of each database that was open since Start, sorted by name.
func (b *Backup) Databases() []Status {
	b.mu.Lock()
	dbs := make([]*database, 0, len(b.dbs))
	for _, d := range b.dbs {
		dbs = append(dbs, d)
	}
	b.mu.Unlock()
	all := make([]Status, 0, len(dbs))
	for _, d := range dbs {
		d.mu.Lock()
		epoch, since := d.epoch, d.since
		d.mu.Unlock()
		b.mu.Lock()
		s := Status{Name: d.name, Last: d.last, TXID: d.stored, waiting: d.done < epoch}
		if s.waiting {
			if !d.behind.IsZero() {
				since = d.behind
			}
			if !since.IsZero() {
				s.Lag = time.Since(since)
			}
		}
		if d.err != nil {
			s.Error = d.err.Error()
		}
		b.mu.Unlock()
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Status) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// limiter limits bytes per second.
type limiter struct {
	rate int64 // 0: no limit
	mu   sync.Mutex
	free time.Time // when the next byte may be sent
}

func (l *limiter) wait(ctx context.Context, n int64) error {
	if l.rate <= 0 {
		return nil
	}
	l.mu.Lock()
	now := time.Now()
	if l.free.Before(now) {
		l.free = now
	}
	wait := l.free.Sub(now)
	l.free = l.free.Add(time.Duration(float64(n) / float64(l.rate) * float64(time.Second)))
	l.mu.Unlock()
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

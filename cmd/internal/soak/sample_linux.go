// SPDX-License-Identifier: MIT

package soak

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/procstat"
)

// lines samples the resources every second to record their peak, and calls Line at its interval,
// until the run is over.
func (s *soaker) lines(over context.Context) {
	every := max(s.o.Every, time.Millisecond)
	tick := time.NewTicker(min(every, time.Second))
	defer tick.Stop()
	for next := every; ; {
		select {
		case <-over.Done():
			return
		case <-tick.C:
		}
		now := s.status()
		if s.o.Line != nil && time.Since(s.begin) >= next {
			s.o.Line(now)
			next += every
		}
	}
}

// status returns the current status.
func (s *soaker) status() Status {
	l := look()
	s.mu.Lock()
	s.peak = Left{
		max(s.peak.Descriptors, l.Descriptors), max(s.peak.Goroutines, l.Goroutines),
		max(s.peak.Resident, l.Resident), max(s.peak.Heap, l.Heap),
	}
	s.mu.Unlock()
	st := Status{
		Seconds: time.Since(s.begin).Seconds(), Round: int(s.round.Load()), Errors: s.errors.Load(),
		Operations: make(map[string]int64), Descriptors: l.Descriptors, Goroutines: l.Goroutines,
		Resident: l.Resident, Heap: l.Heap, InFlight: s.inFlight.Load() + s.environmentsInFlight(),
	}
	for row, n := range s.ops {
		st.Operations[row] = n.Load()
	}
	return st
}

// looking keeps a sampler from counting the descriptors that another sampler has open.
var looking sync.Mutex

// look counts the resources of the process.
func look() Left {
	looking.Lock()
	defer looking.Unlock()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	resident, _ := procstat.Resident(os.Getpid()) // 0 if unknown
	return Left{len(descriptors()), runtime.NumGoroutine(), resident, int64(m.HeapInuse)}
}

// openFiles returns the targets of the process's descriptors.
func openFiles() []string {
	looking.Lock()
	defer looking.Unlock()
	return descriptors()
}

// opened returns the targets that occur more often now than before.
func opened(before, now []string) []string {
	seen := make(map[string]int)
	for _, name := range before {
		seen[name]++
	}
	var more []string
	for _, name := range now {
		if seen[name]--; seen[name] < 0 {
			more = append(more, name)
		}
	}
	return more
}

// descriptors returns the targets of the process's descriptors, except the one that reads them.
func descriptors() []string {
	// This makes Go's netpoller open its own descriptors first.
	if r, w, err := os.Pipe(); err == nil {
		_, _ = r.Close(), w.Close()
	}
	const dir = "/proc/self/fd"
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var open []string
	for _, n := range names {
		if to, err := os.Readlink(filepath.Join(dir, n.Name())); err == nil {
			open = append(open, to)
		}
	}
	return open
}

// settle waits until there are no more descriptors and goroutines than before, because closed
// resources may take a while to be released. It returns free memory to the system and counts what
// remains.
func (s *soaker) settle(ctx context.Context, before Left) Left {
	end := time.Now().Add(settled)
	for pause := time.Millisecond; before.Goroutines > 0 && ctx.Err() == nil && time.Now().Before(end); pause = min(2*pause, 100*time.Millisecond) {
		runtime.GC() // closes unreferenced files
		if l := look(); l.Descriptors <= before.Descriptors && s.others(l.Goroutines) <= before.Goroutines {
			break
		}
		time.Sleep(pause)
	}
	runtime.GC() // pools are emptied by the second collection
	debug.FreeOSMemory()
	l := look()
	l.Goroutines = s.others(l.Goroutines)
	return l
}

// others returns n without the goroutine of lines.
func (s *soaker) others(n int) int {
	if s.round.Load() > 0 {
		n--
	}
	return n
}

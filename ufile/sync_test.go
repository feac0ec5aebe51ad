// SPDX-License-Identifier: MIT

package ufile

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestSyncsAreShared holds manyCalls syncs: the calls that come meanwhile make one sync together, with the strongest of
// their wishes, and all get its error. Later, single calls share no longer.
func TestSyncsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s syncs
		var calls atomic.Int32
		var wg sync.WaitGroup
		gate := make(chan struct{})
		for range manyCalls {
			wg.Go(func() {
				if err := s.do(false, func(bool) error { calls.Add(1); <-gate; return nil }); err != nil {
					t.Errorf("an unshared sync: %v", err)
				}
			})
		}
		synctest.Wait()
		failure := errors.New("the disk failed")
		for i := range 10 {
			wg.Go(func() {
				err := s.do(i == 7, func(full bool) error {
					calls.Add(1)
					if !full {
						t.Error("the shared sync leaves the times out, for which a call asked")
					}
					return failure
				})
				if err != failure {
					t.Errorf("call %d: %v", i, err)
				}
			})
			synctest.Wait()
		}
		if n := calls.Load(); n != manyCalls {
			t.Errorf("%d syncs at a time, want %d", n, manyCalls)
		}
		close(gate)
		wg.Wait()
		if n := calls.Load(); n != manyCalls+1 {
			t.Errorf("%d syncs for %d calls, want %d", n, manyCalls+10, manyCalls+1)
		}
		for range fewInRow {
			if !s.shares {
				t.Error("calls share no longer, too early")
			}
			if err := s.do(false, func(bool) error { return nil }); err != nil {
				t.Errorf("a sync after one that failed: %v", err)
			}
		}
		if s.running != 0 || s.next != nil || s.shares {
			t.Errorf("at the end %d syncs run, one waits: %v, calls share: %v", s.running, s.next != nil, s.shares)
		}
	})
}

// TestSyncCoversWrites writes and syncs in many goroutines. No call may return before a sync that began after its write has
// ended.
func TestSyncCoversWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s syncs
		var written, durable atomic.Int64
		disk := func(bool) error {
			covers := written.Load()
			time.Sleep(time.Duration(1+covers%7) * time.Microsecond) // of the bubble's clock
			for {
				old := durable.Load()
				if old >= covers || durable.CompareAndSwap(old, covers) {
					return nil
				}
			}
		}
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				for j := range 100 {
					mine := written.Add(1)
					_ = s.do(false, disk)
					if d := durable.Load(); d < mine {
						t.Errorf("write %d is acknowledged when %d are durable", mine, d)
						return
					}
					time.Sleep(time.Duration((i+j)%5) * time.Microsecond)
				}
			})
		}
		wg.Wait()
	})
}

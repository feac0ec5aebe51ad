// SPDX-License-Identifier: MIT

package fdlock

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// ways are the two ways to close.
var ways = map[string]func(*Lock) bool{"Close": (*Lock).Close, "CloseAcrossBubbles": (*Lock).CloseAcrossBubbles}

func TestCloseWaitsForTheLastUser(t *testing.T) {
	for name, closeLock := range ways {
		t.Run(name, func(t *testing.T) { closeWaits(t, closeLock) })
	}
}

func closeWaits(t *testing.T, closeLock func(*Lock) bool) {
	var l Lock
	for range 2 {
		if !l.Acquire() {
			t.Fatal("Use failed on an open lock")
		}
	}
	done := make(chan bool)
	go func() { done <- closeLock(&l) }()
	for !l.Closed() {
		select {
		case <-done:
			t.Fatal("Close returned while two users held the lock")
		default:
		}
	}
	if l.Acquire() {
		t.Fatal("Use succeeded after Close had begun")
	}
	l.Release()
	select {
	case <-done:
		t.Fatal("Close returned while a user held the lock")
	default:
	}
	l.Release()
	if !<-done {
		t.Fatal("the only call of Close returns false")
	}
	if closeLock(&l) {
		t.Fatal("the second Close returned true")
	}
}

// TestUseAndCloseRace lets users check that the descriptor is open while they hold it. Two
// other goroutines close it.
func TestUseAndCloseRace(t *testing.T) {
	for name, closeLock := range ways {
		t.Run(name, func(t *testing.T) { useAndClose(t, closeLock) })
	}
}

func useAndClose(t *testing.T, closeLock func(*Lock) bool) {
	for range 300 {
		var l Lock
		var open atomic.Bool
		open.Store(true)
		var users, closers sync.WaitGroup
		var wins atomic.Int32
		for range 4 {
			users.Go(func() {
				for l.Acquire() {
					if !open.Load() {
						t.Error("a user held the lock after the descriptor was closed")
					}
					l.Release()
				}
			})
		}
		for range 2 {
			closers.Go(func() {
				if closeLock(&l) {
					open.Store(false)
					wins.Add(1)
				}
			})
		}
		closers.Wait()
		users.Wait()
		if wins.Load() != 1 {
			t.Fatalf("Close returned true %d times, want once", wins.Load())
		}
	}
}

// In a synctest bubble Close waits durably, so that the clock of the bubble moves.
func TestCloseIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Lock
		l.Acquire()
		go func() {
			time.Sleep(time.Hour)
			l.Release()
		}()
		if !l.Close() {
			t.Error("the only call of Close returns false")
		}
	})
}

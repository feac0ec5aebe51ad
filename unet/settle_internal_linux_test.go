// SPDX-License-Identifier: MIT

package unet

import (
	"testing"
	"time"
)

// TestSettleWaitsForManyOnly has a driver wait for readers that have not begun.
func TestSettleWaitsForManyOnly(t *testing.T) {
	l := &loop{settled: make(chan struct{}, 1)}
	l.woken.Store(1 + fewEvents)
	l.settle() // few of them are not worth it
	for range fewEvents {
		l.begun()
	}
	l.woken.Add(fewEvents + 1)
	done := make(chan struct{})
	go func() { l.settle(); close(done) }()
	for l.woken.Load() != fewEvents+1 { // the driver has stepped aside
		time.Sleep(time.Millisecond)
	}
	for range fewEvents {
		l.begun()
	}
	select {
	case <-done:
		t.Fatal("went on before all had begun")
	case <-time.After(10 * time.Millisecond):
	}
	l.begun()
	<-done
	if n := l.woken.Load(); n != 1 {
		t.Errorf("%d are counted afterwards", n)
	}
}

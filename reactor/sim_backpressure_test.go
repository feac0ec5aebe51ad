// SPDX-License-Identifier: MIT

package reactor

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringside-io/ringside/internal/testing/kernelsim"
)

// overSim runs a test with a simulated kernel without faults.
func overSim(t *testing.T, o Options, test func(t *testing.T, k *kernelsim.Kernel, r *Reactor)) {
	synctest.Test(t, func(t *testing.T) {
		k := kernelsim.New(kernelsim.Options{Seed: 1})
		defer k.Close()
		o.Loops, o.open = 1, simOpener(k, 8)
		r, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		test(t, k, r)
	})
}

// TestDoContextGivesUpWaitingForRoom fills the table with operations that do not end.
// Promise: reactor/full-queues-make
func TestDoContextGivesUpWaitingForRoom(t *testing.T) {
	overSim(t, Options{InFlight: 2}, func(t *testing.T, k *kernelsim.Kernel, r *Reactor) {
		pipe := k.Pipe()
		for range 2 {
			if _, err := r.Queue(simRead(pipe, make([]byte, 1)), nil); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if res := r.DoContext(ctx, simRead(pipe, make([]byte, 1))); !errors.Is(res.Cause, context.DeadlineExceeded) {
			t.Errorf("%+v", res)
		}
		if n := r.Stats().InFlight; n != 2 {
			t.Errorf("%d in flight", n)
		}
	})
}

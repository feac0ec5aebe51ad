// SPDX-License-Identifier: MIT

package reactor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringside-io/ringside/internal/testing/simring"
)

// overSim runs a test over both kinds of loop with a kernel that makes no
// trouble.
func overSim(t *testing.T, o Options, test func(t *testing.T, k *simring.Kernel, r *Reactor)) {
	for _, pinned := range []bool{false, true} {
		t.Run(fmt.Sprintf("pinned=%v", pinned), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := simring.New(simring.Options{Seed: 1})
				defer k.Close()
				o.Pinned, o.Loops, o.open = pinned, 1, simOpener(k, 8)
				r, err := New(o)
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				test(t, k, r)
			})
		})
	}
}

// TestDoContextGivesUpWaitingForRoom fills the table with what does not end.
func TestDoContextGivesUpWaitingForRoom(t *testing.T) {
	overSim(t, Options{InFlight: 2}, func(t *testing.T, k *simring.Kernel, r *Reactor) {
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

// TestGroupsDoNotWaitForEachOther has many groups want all of a small table.
func TestGroupsDoNotWaitForEachOther(t *testing.T) {
	overSim(t, Options{InFlight: 4, Entries: 8}, func(t *testing.T, k *simring.Kernel, r *Reactor) {
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for range 20 {
					ops := make([]Op, 4)
					for i := range ops {
						ops[i].SQE.Nop()
					}
					if err := r.DoChain(ops, make([]Result, 4)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	})
}

// TestBatchSaysWhatWasNotStarted shuts the reactor between two portions.
func TestBatchSaysWhatWasNotStarted(t *testing.T) {
	overSim(t, Options{InFlight: 4}, func(t *testing.T, k *simring.Kernel, r *Reactor) {
		pipe := k.Pipe()
		ops, results := make([]Op, 4), make([]Result, 4)
		for i := range ops {
			ops[i] = *simRead(pipe, make([]byte, 1))
		}
		time.AfterFunc(time.Second, func() {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = r.Drain(ctx)
			k.Feed(pipe, 2)
		})
		err := r.DoBatch(ops, results)
		if !errors.Is(err, ErrClosed) {
			t.Fatalf("the answer: %v", err)
		}
		for i, res := range results {
			if started := i < 2; started && (res.Res != 1 || res.Cause != nil) || !started && !errors.Is(res.Cause, ErrClosed) {
				t.Errorf("operation %d: %+v", i, res)
			}
		}
	})
}

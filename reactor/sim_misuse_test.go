// SPDX-License-Identifier: MIT

package reactor

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/ringside-io/ringside/internal/testing/simring"
	"github.com/ringside-io/ringside/uring"
)

func simRead(fd int, p []byte) *Op {
	op := &Op{Buf: p, Bytes: len(p)}
	op.SQE.Read(uring.Fd(fd), p, 0)
	return op
}

// TestMisuseIsLoud has callbacks call what would wait for themselves.
func TestMisuseIsLoud(t *testing.T) {
	nop := func() *Op {
		op := new(Op)
		op.SQE.Nop()
		return op
	}
	waits := map[string]func(r *Reactor){
		"Do":        func(r *Reactor) { r.Do(nop()) },
		"DoContext": func(r *Reactor) { r.DoContext(context.Background(), nop()) },
		"DoBatch":   func(r *Reactor) { _ = r.DoBatch([]Op{*nop()}, make([]Result, 1)) },
		"DoChain":   func(r *Reactor) { _ = r.DoChain([]Op{*nop()}, make([]Result, 1)) },
		"Drain":     func(r *Reactor) { _ = r.Drain(context.Background()) },
		"Close":     func(r *Reactor) { _ = r.Close() },
	}
	for name, call := range waits {
		for _, pinned := range []bool{false, true} {
			if name != "Close" && (!pinned || threadID() == 0) {
				continue // a shared loop only holds up other callbacks
			}
			synctest.Test(t, func(t *testing.T) {
				k := simring.New(simring.Options{Seed: 1})
				defer k.Close()
				r, err := New(Options{Pinned: pinned, Loops: 1, open: simOpener(k, 8)})
				if err != nil {
					t.Fatal(err)
				}
				panicked := make(chan any)
				if _, err := r.Queue(nop(), func(Result) {
					defer func() { panicked <- recover() }()
					call(r)
				}); err != nil {
					t.Fatal(err)
				}
				if why := <-panicked; why == nil {
					t.Errorf("%s by a callback, pinned %v: no panic", name, pinned)
				}
				if res := r.Do(nop()); res.Cause != nil && name != "Drain" {
					t.Errorf("after that: %+v", res)
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

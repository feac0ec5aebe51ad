// SPDX-License-Identifier: MIT

package reactor

import (
	"testing"
	"testing/synctest"

	"github.com/ringside-io/ringside/internal/testing/kernelsim"
	"github.com/ringside-io/ringside/uring"
)

func simRead(fd int, p []byte) *Op {
	op := &Op{Buf: p, Bytes: len(p)}
	op.SQE.Read(uring.Fd(fd), p, 0)
	return op
}

// TestCloseFromACallbackPanics calls Close from a callback, which would wait for that callback.
func TestCloseFromACallbackPanics(t *testing.T) {
	nop := new(Op)
	nop.SQE.Nop()
	synctest.Test(t, func(t *testing.T) {
		k := kernelsim.New(kernelsim.Options{Seed: 1})
		defer k.Close()
		r, err := New(Options{Loops: 1, open: simOpener(k, 8)})
		if err != nil {
			t.Fatal(err)
		}
		panicked := make(chan any)
		if _, err := r.Queue(nop, func(Result) {
			defer func() { panicked <- recover() }()
			_ = r.Close()
		}); err != nil {
			t.Fatal(err)
		}
		if why := <-panicked; why == nil {
			t.Error("Close by a callback: no panic")
		}
		if res := r.Do(nop); res.Cause != nil {
			t.Errorf("after that: %+v", res)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

// SPDX-License-Identifier: MIT

//go:build linux

package reactor

import (
	"errors"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// TestFewerRingsWhereMemoryIsShort has the memlock limit leave room for one ring
// of three, and for none.
func TestFewerRingsWhereMemoryIsShort(t *testing.T) {
	ringtest.NeedRing(t)
	for _, room := range []int{1, 0} {
		r, err := New(Options{Loops: 3, open: func(o *Options, i int, first ring) (ring, parker, error) {
			if i >= room {
				return nil, nil, syscall.ENOMEM
			}
			return openKernelRing(o, i, first)
		}})
		if room == 0 {
			if !errors.Is(err, syscall.ENOMEM) {
				t.Fatalf("no room at all: %v", err)
			}
			continue
		}
		if err != nil || len(r.loops) != room {
			t.Fatalf("room for one ring: %v", err)
		}
		op := &Op{}
		op.SQE.Nop()
		for range 10 {
			if res := r.Do(op); res.Cause != nil || res.Res != 0 {
				t.Errorf("%+v", res)
			}
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

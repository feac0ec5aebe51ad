// SPDX-License-Identifier: MIT

package appendlog

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// TestSeededMissingSync leaves out the syncs of files, or those of directories, from some
// time before a power cut. The check of TestPowerCuts must find a loss, and none when no
// sync is left out.
// Promise: tests/missing-sync-found
func TestSeededMissingSync(t *testing.T) {
	ringtest.AsksNoKernel(t)
	if testing.Short() {
		t.Skip("checks another test, not the product: not with -short")
	}
	for _, op := range []string{"sync", "dirsync", "none"} {
		t.Run(op, func(t *testing.T) {
			lost := 0
			for seed := range uint64(30) {
				if err := missingSync(op, seed); err != nil {
					if lost++; lost == 1 {
						t.Logf("seed %d: %v", seed, err)
					}
				}
			}
			if (lost > 0) != (op != "none") {
				t.Errorf("%d logs have lost records", lost)
			}
		})
	}
}

// missingSync leaves out a sync of a kind and returns the error of the log after the power
// cut.
func missingSync(op string, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 0))
	o := Options{SegmentSize: 4096}
	s, l := newMemStore(), newLedger()
	nth, left := rng.IntN(3), 20+rng.IntN(100)
	s.fault = func(c memCall) memFault {
		if left--; left <= 0 {
			return memFault{err: errPowerCut}
		}
		return memFault{left: c.op == op && c.n >= nth}
	}
	if a, err := tryMem(s, o); err == nil {
		for _, d := range numbered(strings.Repeat("x", 300), 30) {
			pos, err := a.Append([]byte(d))
			l.note(d, pos, err)
		}
		_ = a.Close()
	}
	s.fault = nil
	b, err := tryMem(s.crash(rng), o)
	if err != nil {
		return err
	}
	defer b.Close()
	return l.judge(b)
}

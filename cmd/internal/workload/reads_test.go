// SPDX-License-Identifier: MIT

package workload

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

func readsJob(t *testing.T, ring string, depth int) Job {
	t.Helper()
	f, err := datafile.Create(t.Context(), t.TempDir(), 64*datafile.UnitSize, 7, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Remove() })
	return Job{
		Suite: "ring", Workload: "read", Engine: engine.NameRingside, Warm: time.Millisecond, Measure: 20 * time.Millisecond,
		Work: &Reads{Ring: ring, Depth: depth, Path: f.Path(), Span: f.Size(), Content: f.Seed(), Seed: 9},
	}
}

func TestReads(t *testing.T) {
	for _, ring := range []string{RingDefault, RingDefer} {
		for _, depth := range []int{1, 32, NopEntries} {
			t.Run(fmt.Sprintf("%s_%d", ring, depth), func(t *testing.T) {
				needRing(t, ring)
				s, err := readsJob(t, ring, depth).Run(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if s.Ops == 0 || s.Ops%ReadsChunk != 0 || s.Bytes != s.Ops*ReadsBlock {
					t.Errorf("%d operations, %d bytes", s.Ops, s.Bytes)
				}
			})
		}
	}
}

func TestReadsAllocateNothing(t *testing.T) {
	needRing(t, RingDefault)
	l, err := of[Reads](readsJob(t, RingDefault, 32)).newLoop()
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.chunk() // opens the ring
	n := ringtest.Allocations(3, func() {
		_, again := l.chunk()
		err = errors.Join(err, again)
	})
	if err = errors.Join(err, l.close()); err != nil || n != 0 {
		t.Errorf("%v allocations per chunk, %v", n, err)
	}
}

func TestReadsErrors(t *testing.T) {
	needRing(t, RingDefault)
	for name, tc := range map[string]struct {
		change func(*Reads)
		says   string
	}{
		"unknown ring":  {func(r *Reads) { r.Ring = "wedding" }, "wedding"},
		"no depth":      {func(r *Reads) { r.Depth = 0 }, "depth of 0"},
		"too deep":      {func(r *Reads) { r.Depth = NopEntries + 1 }, "depth of 257"},
		"no span":       {func(r *Reads) { r.Span = 1 }, "span of 1"},
		"no file":       {func(r *Reads) { r.Path += "-missing" }, "missing"},
		"other content": {func(r *Reads) { r.Content++ }, "seed"},
		"past the end":  {func(r *Reads) { r.Span *= 1000 }, "returned 0"},
	} {
		j := readsJob(t, RingDefault, 4)
		tc.change(of[Reads](j))
		if _, err := j.Run(t.Context()); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

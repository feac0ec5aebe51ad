// SPDX-License-Identifier: MIT

package measure

import (
	"errors"
	"io"
	"testing"
	"time"
)

func TestRunCountsWhatRunsBesideApart(t *testing.T) {
	const nap = time.Millisecond
	plan := tiny
	for range 2 {
		plan.Beside = append(plan.Beside, func() (int, error) { time.Sleep(nap); return 100, nil })
	}
	s, err := Run(t.Context(), plan, yieldOp)
	if err != nil {
		t.Fatal(err)
	}
	if s.Bytes != s.Ops*4096 {
		t.Errorf("%d operations moved %d bytes: the concurrent work was counted with them", s.Ops, s.Bytes)
	}
	most := int64(2*s.Elapsed/nap) + 2
	if s.Units == nil || *s.Units < 2 || *s.Units > most {
		t.Fatalf("%v units, at most %d fit into %v", s.Units, most, s.Elapsed)
	}
	if got := s.Metrics()[UnitsPerS]; got <= 0 || got > 2100 {
		t.Errorf("%v units per second", got)
	}
	if s, err = Run(t.Context(), tiny, yieldOp); err != nil || s.Units != nil {
		t.Errorf("without concurrent work: %v units, %v", s.Units, err)
	}
	if _, ok := s.Metrics()[UnitsPerS]; ok {
		t.Error("a rate without concurrent work")
	}
}

func TestRunEndsWhenWhatRunsBesideFails(t *testing.T) {
	plan := tiny
	plan.Measure = time.Minute
	plan.Beside = []Op{func() (int, error) { return 0, io.ErrClosedPipe }}
	if _, err := Run(t.Context(), plan, yieldOp); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
}

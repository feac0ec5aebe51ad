// SPDX-License-Identifier: MIT

package workload

import (
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
)

func burnerJob(span int64, burners int) Job {
	content := uint64(contentSeed)
	return Job{
		Suite: "file", Workload: "burner", Goroutines: 2, Warm: time.Millisecond, Measure: 20 * time.Millisecond,
		Work: &Burner{RandRead: RandRead{Span: span, Block: datafile.UnitSize, Content: &content}, Burners: burners},
	}
}

func TestBurnerCountsReadsAndComputation(t *testing.T) {
	m := newMemory(64 * datafile.UnitSize)
	s, err := burnerJob(int64(len(m.data)), 2).RunWith(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if s.Ops == 0 || s.Bytes != s.Ops*datafile.UnitSize || s.Units == nil || *s.Units == 0 || s.CPU != nil {
		t.Errorf("sample %+v", s)
	}
	if m.closed != 1 {
		t.Errorf("closed %d times", m.closed)
	}
}

func TestBurnerErrors(t *testing.T) {
	m := newMemory(8 * datafile.UnitSize)
	if _, err := burnerJob(int64(len(m.data)), 0).RunWith(t.Context(), m); err == nil {
		t.Error("no computing goroutine: no error")
	}
	if _, err := burnerJob(100, 1).RunWith(t.Context(), m); err == nil {
		t.Error("no block: no error")
	}
}

// SPDX-License-Identifier: MIT

package measure

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"
)

// turningJob repeats a yield in turns. It fails after Fail turns if that is not 0.
type turningJob struct {
	Fail  int
	turns Turns
}

func (j *turningJob) TakeTurns(t Turns) { j.turns = t }

func (j turningJob) run(ctx context.Context) (Sample, error) {
	n := 0
	return Run(ctx, Plan{Goroutines: 2, Warm: time.Millisecond, Turns: j.turns, Adjust: func(s *Sample) error {
		if n++; n == j.Fail {
			return errors.New("no such turn")
		}
		s.Backend = "yield"
		return nil
	}}, func(int) (Op, error) {
		return func() (int, error) { runtime.Gosched(); return 1, nil }, nil
	})
}

func TestSessionTakesTurns(t *testing.T) {
	s, err := testWorker(t, "turns").Open(t.Context(), turningJob{})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		got, err := s.Turn(2 * time.Millisecond)
		if err != nil || got.Ops == 0 || got.Elapsed < 2*time.Millisecond || got.Backend != "yield" || got.CPU == nil {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestSessionFails(t *testing.T) {
	s, err := testWorker(t, "turns").Open(t.Context(), turningJob{Fail: 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Turn(time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Turn(time.Millisecond); err == nil || err.Error() != "no such turn" {
		t.Errorf("got %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("the error came twice: %v", err)
	}
	if _, err := testWorker(t, "fail").Open(t.Context(), turningJob{}); err == nil || err.Error() != "no such ring" {
		t.Errorf("got %v", err)
	}
}

func TestSessionEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s, err := testWorker(t, "turns").Open(ctx, turningJob{})
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := s.Turn(time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// fixedPlayer answers at once.
type fixedPlayer struct{}

func (fixedPlayer) Turn(d time.Duration) (Sample, error) { return Sample{Ops: 1, Elapsed: d}, nil }
func (fixedPlayer) Close() error                         { return nil }

func TestDuelPairsTurns(t *testing.T) {
	got, first := make([]int, 3), make([]int, 3)
	var order []int
	err := Duel(t.Context(), []Player{fixedPlayer{}, fixedPlayer{}, fixedPlayer{}}, time.Millisecond, func(pair int) bool { return pair < 200 },
		func(player int, s Sample) error {
			if pair := len(order) / 3; got[player] != pair {
				t.Fatalf("player %d has turn %d in pair %d", player, got[player], pair)
			}
			got[player]++
			if order = append(order, player); len(order)%3 == 1 {
				first[player]++
			}
			return nil
		})
	if err != nil || !slices.Equal(got, []int{200, 200, 200}) {
		t.Errorf("%v turns, %v", got, err)
	}
	for player, n := range first {
		if n < 20 {
			t.Errorf("player %d began %d of 200 pairs", player, n)
		}
	}
}

func TestHistogramQuantiles(t *testing.T) {
	var h, other Histogram
	for i := 1; i <= 1000; i++ {
		h.Record(time.Duration(i) * time.Microsecond)
		other.Record(time.Duration(1000+i) * time.Microsecond)
	}
	h.Merge(&other)
	for _, tc := range []struct {
		q    float64
		want time.Duration
	}{{0, time.Microsecond}, {0.5, 1001 * time.Microsecond}, {0.99, 1981 * time.Microsecond}, {1, 1 << histBits}} {
		if got := h.Quantile(tc.q); math.Abs(float64(got-tc.want)) > 0.008*float64(tc.want) {
			t.Errorf("quantile %v: %v, want %v", tc.q, got, tc.want)
		}
	}
	var one Histogram
	one.Record(1 << 50)
	if got := one.Quantile(0.5); got < 136*time.Second {
		t.Errorf("a latency beyond the range: %v", got)
	}
	if (&Histogram{}).Quantile(0.5) != 0 {
		t.Error("an empty histogram has a quantile")
	}
}

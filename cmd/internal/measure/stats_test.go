// SPDX-License-Identifier: MIT

package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestSummarize(t *testing.T) {
	for _, tc := range []struct {
		in   []float64
		want Summary
	}{
		{[]float64{7}, Summary{7, 7, 7}},
		{[]float64{3, 1, 2}, Summary{2, 1, 3}},
		{[]float64{4, 1, 3, 2}, Summary{2.5, 1, 4}},
		{[]float64{5, 5, 1, 100, 5}, Summary{5, 1, 100}},
	} {
		before := slices.Clone(tc.in)
		if got := Summarize(tc.in); got != tc.want {
			t.Errorf("Summarize(%v) = %v, want %v", tc.in, got, tc.want)
		}
		if !slices.Equal(before, tc.in) {
			t.Errorf("Summarize changed its argument to %v", tc.in)
		}
	}
}

func TestRatioIsTakenPairByPair(t *testing.T) {
	// The machine became ten times slower after the first pair; the ratio of medians would
	// be 0.2.
	got, ok := Ratio([]float64{200, 20, 20}, []float64{100, 10, 10})
	if want := (Summary{2, 2, 2}); !ok || got != want {
		t.Errorf("got %v, %v; want %v", got, ok, want)
	}
	got, ok = Ratio([]float64{10, 20, 90}, []float64{10, 10, 30})
	if want := (Summary{2, 1, 3}); !ok || got != want {
		t.Errorf("got %v, %v; want %v", got, ok, want)
	}
	for name, pair := range map[string][2][]float64{
		"zero divisor":      {{1, 2}, {1, 0}},
		"different lengths": {{1, 2}, {1}},
		"nothing":           {nil, nil},
	} {
		if got, ok := Ratio(pair[0], pair[1]); ok {
			t.Errorf("%s gave %v", name, got)
		}
	}
}

func TestInterleave(t *testing.T) {
	var order []string
	got, err := Interleave(t.Context(), 4, []string{"a", "b", "c"},
		func(_ context.Context, engine string, pair int) (string, error) {
			order = append(order, engine)
			return fmt.Sprint(engine, pair), nil
		})
	if err != nil || strings.Join(order, "") != "abcbcacababc" {
		t.Errorf("got order %v, error %v", order, err)
	}
	for i, engine := range []string{"a", "b", "c"} {
		if want := []string{engine + "0", engine + "1", engine + "2", engine + "3"}; !slices.Equal(got[i], want) {
			t.Errorf("engine %s: %v, want %v", engine, got[i], want)
		}
	}
}

func TestInterleaveStops(t *testing.T) {
	boom := errors.New("boom")
	runs := 0
	_, err := Interleave(t.Context(), 3, []string{"a", "b"},
		func(context.Context, string, int) (int, error) {
			if runs++; runs == 2 {
				return 0, boom
			}
			return 0, nil
		})
	if !errors.Is(err, boom) || runs != 2 {
		t.Errorf("after %d runs: %v", runs, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = Interleave(ctx, 3, []string{"a", "b"},
		func(context.Context, string, int) (int, error) { cancel(); runs++; return 0, nil })
	if !errors.Is(err, context.Canceled) || runs != 3 {
		t.Errorf("after %d runs: %v", runs, err)
	}
}

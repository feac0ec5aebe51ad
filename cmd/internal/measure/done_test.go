// SPDX-License-Identifier: MIT

package measure

import (
	"errors"
	"testing"
	"time"
)

func TestDoneEndsTheWindowEarly(t *testing.T) {
	const inWindow = 50
	left := 30
	plan := Plan{
		Goroutines: 1, Warm: time.Hour, Measure: time.Hour,
		Between: func() error { left = inWindow; return nil },
	}
	s, err := Run(t.Context(), plan, func(int) (Op, error) {
		return func() (int, error) {
			if left == 0 {
				return 0, ErrDone
			}
			left--
			return 8, nil
		}, nil
	})
	if err != nil || s.Ops != inWindow || s.Bytes != 8*inWindow || s.Elapsed > time.Minute {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestNothingLeftForTheWindow(t *testing.T) {
	_, err := Run(t.Context(), Plan{Goroutines: 2, Warm: time.Hour, Measure: time.Hour}, func(int) (Op, error) {
		return func() (int, error) { return 0, ErrDone }, nil
	})
	if !errors.Is(err, ErrNoOps) {
		t.Errorf("got %v", err)
	}
}

func TestBetweenFails(t *testing.T) {
	broken := errors.New("broken")
	plan := Plan{Goroutines: 1, Warm: time.Millisecond, Measure: time.Hour, Between: func() error { return broken }}
	_, err := Run(t.Context(), plan, func(int) (Op, error) {
		return func() (int, error) { return 0, nil }, nil
	})
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

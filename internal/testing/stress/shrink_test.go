// SPDX-License-Identifier: MIT

package stress

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestShrink searches for the two steps, of two workers, that a failure needs.
func TestShrink(t *testing.T) {
	s := Generate("any", 1, Size{200, 30}, func(*rand.Rand) Settings { return Settings{"short": 0.5, "late": 1} })
	has := func(s *Scenario, worker int, step string) bool {
		for _, a := range s.Workers {
			if a.Number == worker {
				return slices.ContainsFunc(a.Steps, func(x Step) bool { return x.String() == step })
			}
		}
		return false
	}
	one, two := s.Workers[17], s.Workers[90]
	oneStep, twoStep := one.Steps[len(one.Steps)/2].String(), two.Steps[0].String()
	text := s.String()
	tries := 0
	small := Shrink(s, 2000, func(s *Scenario) bool {
		tries++
		return has(s, 17, oneStep) && has(s, 90, twoStep) && s.Settings.Has("late")
	})
	if len(small.Workers) != 2 || small.Steps() != 2 || len(small.Settings) != 1 {
		t.Errorf("after %d tries:\n%v", tries, small)
	}
	if s.String() != text {
		t.Error("Shrink changed its argument")
	}
	tries = 0
	if Shrink(s, 10, func(*Scenario) bool { tries++; return false }); tries != 10 {
		t.Errorf("%d tries, want 10", tries)
	}
}

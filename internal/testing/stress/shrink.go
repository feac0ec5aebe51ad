// SPDX-License-Identifier: MIT

package stress

import (
	"maps"
	"slices"
)

// Shrink returns the smallest scenario that it finds for which fails returns true.
// It removes workers, then steps, then settings, in portions that become smaller,
// until nothing can be removed or tries are used up. fails may change its scenario. For a
// failure that occurs only sometimes fails should run the scenario several times.
func Shrink(s *Scenario, tries int, fails func(*Scenario) bool) *Scenario {
	sh := &shrinker{best: s, tries: tries, fails: fails}
	for before := -1; before != sh.size() && sh.tries > 0; {
		before = sh.size()
		sh.workers()
		sh.steps()
		sh.settings()
	}
	return sh.best
}

type shrinker struct {
	best  *Scenario
	tries int
	fails func(*Scenario) bool
}

func (sh *shrinker) size() int {
	return len(sh.best.Workers) + sh.best.Steps() + len(sh.best.Settings)
}

// try makes a smaller scenario the best one, if it fails.
func (sh *shrinker) try(s *Scenario) bool {
	if sh.tries <= 0 {
		return false
	}
	sh.tries--
	if !sh.fails(s) {
		return false
	}
	sh.best = s
	return true
}

// portions calls without for parts of count items, from halves to single ones. without
// reports whether the part could be removed.
func (sh *shrinker) portions(count func() int, without func(from, to int) bool) {
	for size := max(count()/2, 1); ; size /= 2 {
		for from := 0; from < count() && sh.tries > 0; {
			if !without(from, min(from+size, count())) {
				from += size
			}
		}
		if size <= 1 {
			return
		}
	}
}

func (sh *shrinker) workers() {
	sh.portions(func() int { return len(sh.best.Workers) }, func(from, to int) bool {
		s := *sh.best
		s.Workers = slices.Delete(slices.Clone(s.Workers), from, to)
		return len(s.Workers) > 0 && sh.try(&s)
	})
}

func (sh *shrinker) steps() {
	for i := 0; i < len(sh.best.Workers); i++ {
		sh.portions(func() int { return len(sh.best.Workers[i].Steps) }, func(from, to int) bool {
			s := *sh.best
			s.Workers = slices.Clone(s.Workers)
			s.Workers[i].Steps = slices.Delete(slices.Clone(s.Workers[i].Steps), from, to)
			return sh.try(&s)
		})
	}
}

// settings removes settings that are not needed. A missing setting is 0.
func (sh *shrinker) settings() {
	for _, name := range slices.Sorted(maps.Keys(sh.best.Settings)) {
		s := *sh.best
		s.Settings = maps.Clone(s.Settings)
		delete(s.Settings, name)
		sh.try(&s)
	}
}

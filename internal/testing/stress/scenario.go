// SPDX-License-Identifier: MIT

package stress

import (
	"fmt"
	"strings"
)

// Scenario is what happens in an environment: its settings, and what each worker does,
// step by step.
type Scenario struct {
	Seed        uint64
	Environment string // which environment it is for, by name
	Settings    Settings
	Workers     []Worker
}

// Settings are numbers by name: how rings are made, how likely each fault is.
// Each environment knows some of them; a missing one is 0.
type Settings map[string]float64

// Has reports whether a setting is not zero.
func (s Settings) Has(name string) bool { return s[name] != 0 }

// Int returns a setting as a whole number.
func (s Settings) Int(name string) int { return int(s[name]) }

// Worker is a goroutine with the steps that it makes one after the other.
type Worker struct {
	Number int // which never changes, also when others are left out
	Steps  []Step
}

// Step is one thing that a worker does.
type Step struct {
	verb *verb
	args []int
}

// verb is a kind of step.
type verb struct {
	name   string
	args   []string
	weight int // how common it is
	make   func(g *generator) []int
	run    func(a *worker, args []int)
}

// String returns the step as it stands in the text of a scenario.
func (s Step) String() string {
	var b strings.Builder
	b.WriteString(s.verb.name)
	for i, name := range s.verb.args {
		fmt.Fprintf(&b, " %s=%d", name, s.args[i])
	}
	return b.String()
}

// Steps returns how many steps all workers have.
func (s *Scenario) Steps() int {
	n := 0
	for _, a := range s.Workers {
		n += len(a.Steps)
	}
	return n
}

// verbs are all kinds of steps.
func verbs() []*verb {
	var all []*verb
	for _, some := range [][]*verb{fileVerbs, rawVerbs, pipeVerbs, connVerbs, watchVerbs} {
		all = append(all, some...)
	}
	return all
}

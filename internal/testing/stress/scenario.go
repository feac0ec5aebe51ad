// SPDX-License-Identifier: MIT

package stress

import (
	"fmt"
	"strings"
)

// Scenario consists of the settings of an environment and the steps of each worker.
type Scenario struct {
	Seed        uint64
	Environment string // which environment it is for, by name
	Settings    Settings
	Workers     []Worker
}

// Settings are numbers by name: options of rings, and the probability of each fault.
// Each environment uses some of them; a missing one is 0.
type Settings map[string]float64

// Has reports whether a setting is not zero.
func (s Settings) Has(name string) bool { return s[name] != 0 }

// Int returns a setting as a whole number.
func (s Settings) Int(name string) int { return int(s[name]) }

// Worker is a goroutine with its steps, which it executes in order.
type Worker struct {
	Number int // does not change when other workers are removed
	Steps  []Step
}

// Step is one action of a worker.
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

// String returns the step in the form of a scenario's text.
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

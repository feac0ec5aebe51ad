// SPDX-License-Identifier: MIT

package stress

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// String returns the text of a scenario, which [Parse] reads.
func (s *Scenario) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "scenario %s seed %d\n", s.Environment, s.Seed)
	for _, name := range slices.Sorted(maps.Keys(s.Settings)) {
		fmt.Fprintf(&b, "set %s %v\n", name, s.Settings[name])
	}
	for _, a := range s.Workers {
		fmt.Fprintf(&b, "worker %d\n", a.Number)
		for _, step := range a.Steps {
			fmt.Fprintf(&b, "  %v\n", step)
		}
	}
	return b.String()
}

// Parse reads the text of a scenario. It ignores empty lines and comments, which begin
// with #.
func Parse(r io.Reader) (*Scenario, error) {
	p := parser{known: make(map[string]*verb), s: &Scenario{Settings: Settings{}}}
	for _, v := range verbs() {
		p.known[v.name] = v
	}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		if words := strings.Fields(line); len(words) > 0 {
			if err := p.line(words); err != nil {
				return nil, fmt.Errorf("scenario: line %d: %q: %w", n, line, err)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("scenario: %w", err)
	}
	if p.s.Environment == "" {
		return nil, fmt.Errorf("scenario: no line says for which environment")
	}
	return p.s, nil
}

type parser struct {
	known map[string]*verb
	s     *Scenario
}

// line parses the words of one line.
func (p *parser) line(words []string) (err error) {
	switch {
	case words[0] == "scenario" && len(words) == 4 && words[2] == "seed":
		p.s.Environment = words[1]
		p.s.Seed, err = strconv.ParseUint(words[3], 10, 64)
	case words[0] == "set" && len(words) == 3:
		p.s.Settings[words[1]], err = strconv.ParseFloat(words[2], 64)
	case words[0] == "worker" && len(words) == 2:
		a := Worker{}
		a.Number, err = strconv.Atoi(words[1])
		p.s.Workers = append(p.s.Workers, a)
	default:
		return p.step(words)
	}
	return err
}

// step reads a step of the last worker.
func (p *parser) step(words []string) error {
	v := p.known[words[0]]
	switch {
	case v == nil:
		return fmt.Errorf("no such step")
	case len(p.s.Workers) == 0:
		return fmt.Errorf("a step before the first worker")
	case len(words)-1 != len(v.args):
		return fmt.Errorf("%s has the arguments %v", v.name, v.args)
	}
	step := Step{verb: v, args: make([]int, len(v.args))}
	for i, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		n, err := strconv.Atoi(value)
		if err != nil || name != v.args[i] || n < 0 {
			return fmt.Errorf("%q in the place of %s", word, v.args[i])
		}
		step.args[i] = n
	}
	last := &p.s.Workers[len(p.s.Workers)-1]
	last.Steps = append(last.Steps, step)
	return nil
}

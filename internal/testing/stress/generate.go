// SPDX-License-Identifier: MIT

package stress

import "math/rand/v2"

// Size bounds a generated scenario.
type Size struct {
	Workers int
	Steps   int // of each worker, on average
}

// generator makes steps.
type generator struct {
	*rand.Rand
	files int
}

// Generate makes the scenario of a seed. choose draws the settings of the environment. Each
// seed has its own mix of steps, so that each kind of step occurs alone and together with
// others.
func Generate(environment string, seed uint64, size Size, choose func(*rand.Rand) Settings) *Scenario {
	rng := rand.New(rand.NewPCG(seed, 0x5ce0))
	s := &Scenario{Seed: seed, Environment: environment, Settings: choose(rng)}
	workers := 1 + size.Workers/2 + rng.IntN(size.Workers)
	s.Settings["files"] = float64(1 + rng.IntN(1+workers/8))
	s.Settings["blocks"] = float64(pick(rng, 4, 64, 512))
	g := &generator{Rand: rng, files: s.Settings.Int("files")}
	kinds := taste(rng, s.Settings)
	for i := range workers {
		a := Worker{Number: i}
		for range 1 + rng.IntN(2*size.Steps) {
			v := kinds[rng.IntN(len(kinds))]
			a.Steps = append(a.Steps, Step{v, v.make(g)})
		}
		s.Workers = append(s.Workers, a)
	}
	return s
}

// taste returns a list that has each kind of step as often as its weight. The setting
// "without-NAME" leaves a kind out.
func taste(rng *rand.Rand, s Settings) []*verb {
	var kinds []*verb
	for len(kinds) == 0 {
		for _, v := range verbs() {
			n := v.weight * pick(rng, 0, 1, 1, 1, 4)
			if s.Has("without-" + v.name) {
				n = 0
			}
			for range n {
				kinds = append(kinds, v)
			}
		}
	}
	return kinds
}

func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

// slot draws one of a worker's slots for files, connections or watches.
func (g *generator) slot() int { return g.IntN(slots) }

func (g *generator) path() int { return g.IntN(g.files) }

// at draws a position in a file; the runner takes it modulo the number of blocks.
func (g *generator) at() int { return g.IntN(1 << 16) }

// blocks draws a number of blocks of a file, usually a small one.
func (g *generator) blocks() int {
	if g.IntN(8) == 0 {
		return 1 + g.IntN(mostBlocks)
	}
	return 1 + g.IntN(3)
}

// bytes draws a number of bytes of a stream.
func (g *generator) bytes() int {
	if g.IntN(8) == 0 {
		return 1 + g.IntN(4000) // a pipe may hold no more than a page
	}
	return 1 + g.IntN(200)
}

// after draws the time after which an operation is cancelled, in microseconds.
func (g *generator) after() int {
	if g.IntN(3) == 0 {
		return 0
	}
	return g.IntN(3000)
}

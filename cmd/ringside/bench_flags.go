// SPDX-License-Identifier: MIT

package main

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spf13/pflag"
)

// benchFlags are common to all suites.
type benchFlags struct {
	pairs    int
	duration time.Duration
	seed     uint64
	json     string
	benchfmt string
	html     string
}

func (b *benchFlags) register(f *pflag.FlagSet) {
	f.IntVar(&b.pairs, "pairs", 5, "interleaved rounds of each engine")
	f.DurationVar(&b.duration, "duration", 200*time.Millisecond, "measured time of each round")
	f.Uint64Var(&b.seed, "seed", 0, "seed of what is arbitrary, such as offsets (0: a new one, which is printed)")
	f.StringVar(&b.json, "json", "", "write the result as JSON to this `file`, - for standard output")
	f.StringVar(&b.html, "html", "", "write a page with pictures to this `file`, - for standard output")
	f.StringVar(&b.benchfmt, "benchfmt", "", "write lines that benchstat reads to this `file`, - for standard output")
}

// check returns an error that names the first flag that makes no sense, and chooses a seed where
// none is given.
func (b *benchFlags) check() error {
	switch {
	case b.pairs < 1:
		return usagef("--pairs %d: at least one pair is needed", b.pairs)
	case b.duration <= 0:
		return usagef("--duration %v: must be positive", b.duration)
	}
	if err := differentFiles(map[string]string{"--json": b.json, "--benchfmt": b.benchfmt, "--html": b.html}); err != nil {
		return err
	}
	// 32 bits stay exact in every JSON reader.
	for b.seed == 0 {
		b.seed = uint64(rand.Uint32())
	}
	return nil
}

// differentFiles refuses two flags that name the same output.
func differentFiles(flags map[string]string) error {
	seen := map[string]string{}
	for _, flag := range slices.Sorted(maps.Keys(flags)) {
		name := flags[flag]
		switch other, twice := seen[name]; {
		case name == "":
		case twice && name == "-":
			return usagef("%s - and %s - cannot share the standard output", other, flag)
		case twice:
			return usagef("%s and %s name the same file %q", other, flag, name)
		}
		seen[name] = flag
	}
	return nil
}

// quiet tells that standard output belongs to a machine.
func (b *benchFlags) quiet() bool { return b.json == "-" || b.benchfmt == "-" || b.html == "-" }

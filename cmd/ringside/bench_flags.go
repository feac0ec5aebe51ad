// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ringside-io/ringside/cmd/internal/suite"
)

// benchFlags are the flags of all suites.
type benchFlags struct {
	suite.Timing
	seed     uint64
	json     string
	benchfmt string
	html     string
	tables   bool
}

func (b *benchFlags) register(f *pflag.FlagSet, time string) {
	f.DurationVar(&b.Time, "time", 0, "time of the whole run, which its cells share (default: "+time+")")
	f.IntVar(&b.Pairs, "pairs", 0, "how often the engines of a cell are started (default: as often as the time allows)")
	f.DurationVar(&b.Duration, "duration", 0, "how long each engine is measured after a start (default: as long as the time allows)")
	f.DurationVar(&b.Turn, "turn", 0, "length of a turn (default: that of the workload)")
	f.BoolVar(&b.Null, "null", false, "compare each engine with itself, to see what the method itself differs by")
	f.Uint64Var(&b.seed, "seed", 0, "seed of random choices, such as offsets (0: a new one, which is printed)")
	f.BoolVar(&b.tables, "tables", false, "print the values of all engines in tables")
	f.StringVar(&b.json, "json", "", "write the result as JSON to this `file`, - for standard output")
	f.StringVar(&b.html, "html", "", "write a page with figures to this `file`, - for standard output")
	f.StringVar(&b.benchfmt, "benchfmt", "", "write lines that benchstat reads to this `file`, - for standard output")
}

// check returns an error that names the first invalid flag. It chooses a seed if none is given.
func (b *benchFlags) check(f *pflag.FlagSet) error {
	for _, name := range []string{"time", "pairs", "duration", "turn"} {
		if v := f.Lookup(name); v.Changed && strings.Trim(v.Value.String(), "0s") == "" {
			return usagef("--%s %s: must be positive", name, v.Value)
		}
	}
	if err := differentFiles(map[string]string{"--json": b.json, "--benchfmt": b.benchfmt, "--html": b.html}); err != nil {
		return err
	}
	// Every JSON reader represents 32 bits exactly.
	for b.seed == 0 {
		b.seed = uint64(rand.Uint32())
	}
	return nil
}

// differentFiles returns an error if two flags name the same output.
func differentFiles(flags map[string]string) error {
	seen := map[string]string{}
	for _, flag := range slices.Sorted(maps.Keys(flags)) {
		name := flags[flag]
		if name == "" {
			continue
		}
		key := filepath.Clean(name)
		switch other, twice := seen[key]; {
		case twice && name == "-":
			return usagef("%s - and %s - cannot share the standard output", other, flag)
		case twice:
			return usagef("%s and %s name the same file %q", other, flag, name)
		}
		seen[key] = flag
	}
	return nil
}

// quiet reports whether a result file goes to standard output.
func (b *benchFlags) quiet() bool { return b.json == "-" || b.benchfmt == "-" || b.html == "-" }

// parseSize parses a number of bytes such as 4096, 64K, 64KiB or 1M. Units are binary.
func parseSize(text string) (int64, error) {
	digits := strings.TrimRight(text, "KMGTkmgtiIbB")
	unit := strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(text[len(digits):]), "B"), "I")
	shift, ok := map[string]int{"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[unit]
	n, err := strconv.ParseInt(digits, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) && ok && n > 0, err == nil && n > math.MaxInt64>>shift:
		return 0, fmt.Errorf("%q: must be at most %d bytes", text, int64(math.MaxInt64))
	case err != nil || !ok || n < 0:
		return 0, fmt.Errorf("%q: must be a number of bytes, or a number with K, M, G or T", text)
	}
	return n << shift, nil
}

// sizeFlag is a flag with a size.
type sizeFlag struct{ n *int64 }

func (s sizeFlag) String() string {
	if s.n == nil || *s.n == 0 {
		return ""
	}
	return strconv.FormatInt(*s.n, 10)
}

func (s sizeFlag) Set(text string) error {
	n, err := parseSize(text)
	if err == nil && n == 0 {
		err = fmt.Errorf("%q: must be positive", text)
	}
	*s.n = n
	return err
}

func (sizeFlag) Type() string { return "size" }

// sizesFlag is a flag with a list of sizes, separated by commas or given repeatedly.
type sizesFlag struct{ list *[]int }

func (s sizesFlag) String() string {
	if s.list == nil || len(*s.list) == 0 {
		return ""
	}
	return strings.Trim(fmt.Sprint(*s.list), "[]")
}

func (s sizesFlag) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		n, err := parseSize(strings.TrimSpace(part))
		if err != nil {
			return err
		}
		*s.list = append(*s.list, int(min(n, math.MaxInt))) // the suite checks the bounds
	}
	return nil
}

func (sizesFlag) Type() string { return "sizes" }

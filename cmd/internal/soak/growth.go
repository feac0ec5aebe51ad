// SPDX-License-Identifier: MIT

package soak

import (
	"fmt"
	"slices"
)

// fewest is how many rounds it takes, after the warm-up, to speak of growth.
const fewest = 6

// Growth compares memory over rounds, of which the first sixth warms up.
type Growth struct {
	What string `json:"what"`
	// Judged is false for a run with too few rounds.
	Judged bool `json:"judged"`
	Grown  bool `json:"grown"`
	// First and Last are the most bytes at the end of a round of the first and the last third, Limit
	// is what Last may be: a quarter more than First, and some MiB.
	First int64 `json:"firstThird"`
	Last  int64 `json:"lastThird"`
	Limit int64 `json:"limit"`
	// Slope is that of the straight line through all rounds by least squares, in bytes for each.
	Slope float64 `json:"slopePerRound"`
}

// judgeGrowth judges bytes at the ends of rounds; some more than a quarter are allowed.
func judgeGrowth(what string, bytes []int64, allowed int64) Growth {
	g := Growth{What: what}
	if len(bytes) > 0 {
		bytes = bytes[max(1, len(bytes)/6):]
	}
	if len(bytes) < fewest {
		return g
	}
	third := len(bytes) / 3
	g.Judged = true
	g.First, g.Last = slices.Max(bytes[:third]), slices.Max(bytes[len(bytes)-third:])
	g.Limit = g.First + g.First/4 + allowed
	g.Slope = slope(bytes)
	g.Grown = g.Last > g.Limit
	return g
}

// slope returns that of the straight line through values, one unit apart, by least squares.
func slope(values []int64) float64 {
	n := float64(len(values))
	var x, y, xx, xy float64
	for i, v := range values {
		a, b := float64(i), float64(v)
		x, y, xx, xy = x+a, y+b, xx+a*a, xy+a*b
	}
	return (n*xy - x*y) / (n*xx - x*x)
}

// String tells what was found.
func (g Growth) String() string {
	if !g.Judged {
		return fmt.Sprintf("%s: too few rounds to judge its growth", g.What)
	}
	is := "has not grown"
	if g.Grown {
		is = "HAS GROWN"
	}
	return fmt.Sprintf("%s %s: at most %.1f MiB in the first third, %.1f MiB in the last (limit %.1f), %+.1f KiB each round",
		g.What, is, mib(g.First), mib(g.Last), mib(g.Limit), g.Slope/1024)
}

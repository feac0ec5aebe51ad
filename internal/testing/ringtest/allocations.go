// SPDX-License-Identifier: MIT

package ringtest

import "testing"

// Allocations returns how many allocations a call of f makes: the least of up to five
// counts of testing.AllocsPerRun over the given rounds. The counts are of the whole
// process. Allocations of f are in each count, occasional ones of other goroutines and
// the runtime are not.
func Allocations(rounds int, f func()) float64 {
	least := testing.AllocsPerRun(rounds, f)
	for range 4 {
		if least == 0 {
			break
		}
		least = min(least, testing.AllocsPerRun(rounds, f))
	}
	return least
}

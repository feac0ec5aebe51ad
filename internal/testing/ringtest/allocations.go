// SPDX-License-Identifier: MIT

package ringtest

import "testing"

// Allocations returns how many allocations a call of f makes, as
// testing.AllocsPerRun counts them over so many rounds, and the least of up to
// five such counts: an allocation of f is in each of them, those that other
// goroutines and the runtime make beside it (the count is of the whole process)
// now and then are not.
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

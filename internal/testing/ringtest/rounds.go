// SPDX-License-Identifier: MIT

package ringtest

import "testing"

// Rounds returns how often a test repeats an operation, or how much it moves: full, or
// brief with -short, which the lanes on emulated machines set.
func Rounds(full, brief int) int {
	if testing.Short() {
		return brief
	}
	return full
}

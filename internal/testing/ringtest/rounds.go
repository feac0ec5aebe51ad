// SPDX-License-Identifier: MIT

package ringtest

import "testing"

// Rounds returns how often a test repeats what one time shows of the kernel, or
// how much it moves: full, or brief with -short, which the lanes on emulated
// machines set.
func Rounds(full, brief int) int {
	if testing.Short() {
		return brief
	}
	return full
}

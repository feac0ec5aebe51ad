// SPDX-License-Identifier: MIT

package ringtest

import (
	"os"
	"testing"
)

// Long reports whether RINGSIDE_LONG asks for the tests' full size, as `make nightly` does.
func Long() bool { return os.Getenv("RINGSIDE_LONG") != "" && !testing.Short() }

// Rounds returns how often a test repeats an operation, or how much it moves: full for
// [Long] tests, otherwise brief, which must be enough to judge.
func Rounds(full, brief int) int {
	if Long() {
		return full
	}
	return brief
}

// SPDX-License-Identifier: MIT

//go:build !race

package ufile_test

// raceEnabled reports whether the race detector is on.
const raceEnabled = false

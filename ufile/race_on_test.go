// SPDX-License-Identifier: MIT

//go:build race

package ufile_test

// raceEnabled reports whether the race detector is on. It makes everything several times
// slower, so tests with one goroutine, which also run without it, do less work.
const raceEnabled = true

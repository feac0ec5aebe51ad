// SPDX-License-Identifier: MIT

//go:build race

package ufile_test

// raceEnabled reports that everything is several times slower: what has one
// goroutine, and runs without the detector too, is cut down.
const raceEnabled = true

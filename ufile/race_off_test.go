// SPDX-License-Identifier: MIT

//go:build !race

package ufile_test

// raceEnabled says that the race detector is on.
const raceEnabled = false

// SPDX-License-Identifier: MIT

//go:build !race

package reactor

// raceEnabled reports whether the race detector is on. It makes sync.Pool drop some of the
// items that are put into it.
const raceEnabled = false

// SPDX-License-Identifier: MIT

//go:build !race

package reactor

// raceEnabled says that sync.Pool drops some of what it is given.
const raceEnabled = false

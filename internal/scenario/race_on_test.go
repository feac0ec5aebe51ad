// SPDX-License-Identifier: MIT

//go:build race

package scenario

// raceCost is how many times fewer operations there is time for with the race
// detector.
const raceCost = 5

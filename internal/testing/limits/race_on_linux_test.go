// SPDX-License-Identifier: MIT

//go:build race

package limits

// raceCost is the factor by which the race detector increases a program's memory.
const raceCost = 4

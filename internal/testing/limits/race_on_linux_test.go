// SPDX-License-Identifier: MIT

//go:build race

package limits

// raceCost is how many times more memory a program has with the race detector.
const raceCost = 4

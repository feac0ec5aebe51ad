// SPDX-License-Identifier: MIT

//go:build !race

package limits

const raceCost = 1

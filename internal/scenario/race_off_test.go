// SPDX-License-Identifier: MIT

//go:build !race

package scenario

const raceCost = 1

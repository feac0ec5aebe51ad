// SPDX-License-Identifier: MIT

//go:build !race

package framing

const raceEnabled = false

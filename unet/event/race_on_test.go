// SPDX-License-Identifier: MIT

//go:build race

package event

const raceEnabled = true

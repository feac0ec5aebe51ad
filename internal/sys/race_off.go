// SPDX-License-Identifier: MIT

//go:build !race

package sys

// RaceEnabled says that this is a build with the race detector; see race_on.go.
const RaceEnabled = false

// Faulty reports whether this build asks [Faults] before each call. Without the race
// detector it does not, and what would ask is not compiled.
const Faulty = false

// What follows does nothing here, and costs nothing.

func RaceRead([]byte)       {}
func RaceWrite([]byte)      {}
func RaceRelease[T any](*T) {}
func RaceAcquire[T any](*T) {}
func RaceBlind()            {}
func RaceSee()              {}
func Poison([]byte)         {}

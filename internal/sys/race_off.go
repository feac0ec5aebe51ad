// SPDX-License-Identifier: MIT

//go:build !race

package sys

import "syscall"

// RaceEnabled reports whether this is a build with the race detector; see race_on.go.
const RaceEnabled = false

// Faulty reports whether this build asks [Faults] before each call. Without the race
// detector it does not, and the code that would ask is not compiled.
const Faulty = false

// The functions after the constants do nothing in these builds and are compiled away:
// see race_on.go.

func fault(_ string, n int) (int, syscall.Errno)             { return n, 0 }
func faultRetry(_ string, n int) (int, syscall.Errno)        { return n, 0 }
func faultSlice[T any](_ string, s []T) ([]T, syscall.Errno) { return s, 0 }

func RaceRead([]byte)       {}
func RaceWrite([]byte)      {}
func RaceRelease[T any](*T) {}
func RaceAcquire[T any](*T) {}
func RaceBlind()            {}
func RaceSee()              {}
func Poison([]byte)         {}

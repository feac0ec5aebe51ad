// SPDX-License-Identifier: MIT

//go:build !race || !linux

package sys

// Faulty says that this build asks [Faults] before each call. Without the race
// detector it does not, and what would ask is not compiled.
const Faulty = false

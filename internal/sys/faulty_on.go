// SPDX-License-Identifier: MIT

//go:build race && linux

package sys

// Faulty says that this build asks [Faults] before each call, as tests do that
// have the kernel fail.
const Faulty = true

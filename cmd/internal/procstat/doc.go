// SPDX-License-Identifier: MIT

// Package procstat reads statistics of another process, so that a server can be measured from
// outside: its CPU time, its memory, how often its threads slept, and how many system calls it
// made.
package procstat

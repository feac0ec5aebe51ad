// SPDX-License-Identifier: MIT

// Package procstat asks the system about another process, so that a server can be measured from
// outside: the CPU time it has used, the memory it holds, how often its threads slept, and how many
// system calls they made.
package procstat

// SPDX-License-Identifier: MIT

// Package liburing measures the workload "nop" in C on liburing, the library of io_uring's author:
// what our ring is compared to. The program is ours; it is compiled on the machine that is
// measured, with the compiler and the liburing found there.
package liburing

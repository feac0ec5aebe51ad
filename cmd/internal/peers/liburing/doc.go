// SPDX-License-Identifier: MIT

// Package liburing measures the workloads "nop" and "echo" in C on liburing, the library of io_uring's author:
// what our ring is compared to. The programs are ours; they are compiled on the machine that is
// measured, with the compiler and the liburing found there.
package liburing

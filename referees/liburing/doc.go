// SPDX-License-Identifier: MIT

// Package liburing compares the builders of package uring with those of liburing, the C library. A
// C program is compiled with the installed header. Both build entries from the same random
// arguments, and the 64 bytes must be equal.
//
// It needs a C compiler and liburing's header (Debian: apt-get install gcc libc6-dev liburing-dev).
// CPATH selects a newer header. Builders that the header does not have are listed and left out.
package liburing

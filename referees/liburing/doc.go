// SPDX-License-Identifier: MIT

// Package liburing compares the builders of package uring with those of liburing, the
// library in C: a program in C is compiled against the header that is installed, both
// build entries from the same random arguments, and the 64 bytes must be equal.
//
// It needs a C compiler and liburing's header (Debian: apt-get install gcc libc6-dev
// liburing-dev); CPATH names a newer one. Builders that the header does not have are
// listed and left out.
package liburing

// SPDX-License-Identifier: MIT

// Package probe holds what feature detection needs and nobody else should: a
// cache that keeps only conclusive answers, the environment that decides about
// io_uring (sysctls, seccomp, limits, security modules, containers), harmless
// system calls that tell whether the kernel is reached at all, and the parsing
// of kernel versions for messages and tests.
package probe

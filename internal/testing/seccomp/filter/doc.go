// SPDX-License-Identifier: MIT

// Package filter denies io_uring to the calling process, as container runtimes do: with a seccomp
// filter that returns an error number for the io_uring system calls and allows all others. It is
// for tests of the fallbacks. A test installs the filter in a child process, because it cannot be
// removed.
package filter

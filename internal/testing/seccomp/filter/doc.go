// SPDX-License-Identifier: MIT

// Package filter forbids io_uring to the calling process, the way a container
// runtime does: by a seccomp filter that answers the io_uring system calls
// with an error number and lets everything else pass. It is for tests of the
// fallbacks; a test installs it in a child process, because it cannot be
// removed.
package filter

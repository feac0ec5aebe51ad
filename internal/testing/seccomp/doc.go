// SPDX-License-Identifier: MIT

// Command seccomp runs a command without access to io_uring.
//
//	go run ./internal/testing/seccomp -errno EPERM -- go test ./...
//
// The system calls io_uring_setup, io_uring_enter and io_uring_register fail with the given error
// number in the command and all its children. Container runtimes return EPERM, and kernels without
// io_uring ENOSYS. With -errno none there is no filter. -memlock and -nofile set resource limits,
// soft and hard. -uid drops privileges; without it, a memory lock limit has no effect on processes
// of root. -loopback makes a new network namespace usable for connections to itself:
//
//	unshare -Urn seccomp -errno none -loopback -- ringside probe
//
// The command replaces this process. The exit status is 127 if it cannot be started, and 2 for
// wrong arguments.
package main

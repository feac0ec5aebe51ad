// SPDX-License-Identifier: MIT

// Command seccomp runs a command to which io_uring is forbidden.
//
//	go run ./internal/testing/seccomp -errno EPERM -- go test ./...
//
// The system calls io_uring_setup, io_uring_enter and io_uring_register fail
// with the given error number in the command and all its children: EPERM is
// what container runtimes answer, ENOSYS what a kernel without io_uring does.
// With -errno none there is no filter. -memlock and -nofile set resource
// limits, soft and hard; -uid drops privileges, which a memory lock limit
// needs to have an effect on what root starts. -loopback makes a new network
// namespace one in which programs can reach themselves:
//
//	unshare -Urn seccomp -errno none -loopback -- ringside probe
//
// The command replaces this process. If it cannot be started the exit status
// is 127, on wrong arguments 2.
package main

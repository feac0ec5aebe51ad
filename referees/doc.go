// SPDX-License-Identifier: MIT

// Package referees is the root of a module for tests by other projects, and for devices that tests
// need:
//
//   - suites: test suites of Go and of other projects, with the overlay of internal/overlay
//   - sockets: suites, servers and clients that use the connections of unet
//   - fusefs: a file system in user space that is slow, silent, short or failing
//   - blockdisk: a block device that records writes and flushes
//
// It is a module of its own so that the library does not depend on its dependencies.
// docs/referees.md describes how to run and extend the tests.
package referees

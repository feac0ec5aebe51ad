// SPDX-License-Identifier: MIT

// Package limits tests all packages together under limits that hosts set:
// little locked memory, few descriptors, a memory cgroup, a collector that runs
// all the time. Each test runs scenarios of package stress over files, rings, sockets and
// the watcher in a separate process. Clear errors and fallbacks are allowed. A wrong
// byte, a hang, a panic, a leak, or an object that still fails after the limit is lifted
// are not.
package limits

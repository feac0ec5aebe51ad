// SPDX-License-Identifier: MIT

// Package limits has tests of everything at once under limits that hosts set:
// little locked memory, few descriptors, a memory cgroup, a collector that runs
// all the time. Each runs in a process of its own, which runs scenarios of
// package stress over files, rings, sockets and the watcher. Clear errors and
// fallbacks are allowed; a wrong byte, a hang, a panic, a leak, or an object that
// stays dead when the limit is gone are not.
package limits

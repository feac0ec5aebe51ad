// SPDX-License-Identifier: MIT

// Package probereport is the model of "ringside probe": what io_uring can do for this process,
// which backend each package of ringside would choose, and what to change to get more.
package probereport

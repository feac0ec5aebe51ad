// SPDX-License-Identifier: MIT

// Package soak keeps all that ringside is made of at work at the same time, for as long as wanted,
// and judges each byte: seeded scenarios of files, rings, sockets and watched descriptors, servers
// with callbacks and with net/http, and SQLite databases. It works in rounds. At the end of each
// everything is closed, and nothing may be left: no descriptor, no goroutine, no memory that grows
// from round to round.
package soak

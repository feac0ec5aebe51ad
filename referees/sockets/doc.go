// SPDX-License-Identifier: MIT

// Package sockets holds tests of packages unet and unet/event that run programs of
// other projects on their connections: suites, servers and clients that expect
// package net.
//
// Some tests do more on request, from the root of the repository:
//
//	go test -race -count=100 -run 'TestConn/.*/(tcp4|tcp6|unix)$' ./referees/sockets
//	TIMES=10 scripts/clients/run
//	RINGSIDE_CONNECTS=100000 go test -run TestConnectsLeaveNothing ./unet
//
// The first command runs golang.org/x/net/nettest in every mode and on every
// transport, which takes about eight minutes. The second one runs those of curl, ab,
// wrk, nghttp, socat, netcat and redis-tools that are installed against servers of
// every backend. The tests with a faulty wire need user and network namespaces and
// /dev/net/tun.
package sockets

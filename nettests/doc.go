// SPDX-License-Identifier: MIT

// Package nettests holds tests of the packages unet and event by others'
// programs: suites, servers and clients that expect package net. It is a module
// of its own so that what they need is not needed by the users of unet.
//
// Some take more when they are asked to, from the root of the repository:
//
//	go test -race -count=100 -run 'TestConn/.*/(tcp4|tcp6|unix)$' ./nettests
//	TIMES=10 scripts/clients/run
//	RINGSIDE_CONNECTS=100000 go test -run TestConnectsLeaveNothing ./unet
//
// The first is golang.org/x/net/nettest on every mode and transport, some eight
// minutes. The second lets curl, ab, wrk, nghttp, socat, netcat and redis-tools,
// as far as they are installed, work on servers of every backend. The tests with
// a faulty wire need user and network namespaces and /dev/net/tun.
package nettests

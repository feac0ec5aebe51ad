// SPDX-License-Identifier: MIT

package echo

import (
	"errors"
	"fmt"

	"github.com/ringside-io/ringside/unet/event"
)

// Names of the engines, as they appear in tables and result files.
const (
	NameStd     = "std"
	NameNetpoll = "netpoll"
	NameEvent   = "ringside-event"
	NameSQPoll  = "ringside-event-sqpoll"
	// NameParked is NameEvent with loops that wait in Go's netpoller and not on threads of their
	// own, NameEpoll the control of both: the same callbacks on epoll.
	NameParked = "ringside-event-parked"
	NameEpoll  = "ringside-event-epoll"
	NameConn   = "ringside-conn"
	// NamePlain is the control of NameConn: the same design without a ring.
	NamePlain = "ringside-plain"
	// NameServe is what "ringside serve" is, NameServeNet the same on package net's listener. They
	// serve files only, where the engines with a net.Listener of their own run http.FileServer.
	NameServe    = "ringside-serve"
	NameServeNet = "ringside-serve-net"
)

// Server is a running echo server.
type Server interface {
	// Addr is where it listens.
	Addr() string
	// Backend tells which mechanism the engine uses, and why.
	Backend() (name, reason string)
	// Enters is how often the engine has called io_uring_enter; -1 where that
	// is not counted.
	Enters() int64
	// Close ends it.
	Close() error
}

// ErrUnknown is matched by the error of [Start] for a name that no engine has.
var ErrUnknown = errors.New("unknown engine")

// Start starts an engine on a port of the loopback that the system chooses.
func Start(s Setup) (Server, error) {
	start := starters[s.Engine]
	if start == nil {
		return nil, fmt.Errorf("%w %q", ErrUnknown, s.Engine)
	}
	return start(s)
}

// starters are the engines of this system.
var starters = map[string]func(Setup) (Server, error){
	NameStd:   startStd,
	NameConn:  startConn,
	NamePlain: startPlain,

	NameServe:    startServe,
	NameServeNet: startServeNet,
	NameNginx:    startNginx,

	NameEvent:  startsEvent(event.Options{}),
	NameParked: startsEvent(event.Options{Mode: event.ModeRing, Wait: event.WaitNetpoller}),
	NameSQPoll: startsEvent(event.Options{Mode: event.ModeRing, SQPoll: true}),
	NameEpoll:  startsEvent(event.Options{Mode: event.ModeEpoll}),
}

// loopback is where servers listen.
const loopback = "127.0.0.1:0"

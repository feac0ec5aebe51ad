// SPDX-License-Identifier: MIT

package watch

import (
	"fmt"
	"strings"
)

// Events is a set of conditions, with the values of poll(2).
type Events uint32

const (
	Read       Events = 0x001  // there is something to read or accept, or the end of file (POLLIN)
	Priority   Events = 0x002  // out-of-band data, or a change of a file, for example in sysfs (POLLPRI)
	Write      Events = 0x004  // a write would accept bytes, or a connect has ended (POLLOUT)
	Error      Events = 0x008  // an error is pending, or the reader of a pipe is gone (POLLERR); always reported
	HangUp     Events = 0x010  // both directions have ended, or the writer of a pipe is gone (POLLHUP); always reported
	PeerHangUp Events = 0x2000 // the peer has shut down its writing (POLLRDHUP)
)

// always are the conditions that are reported without being watched.
const always = Error | HangUp

// known are the conditions that can be watched.
const known = Read | Priority | Write | Error | HangUp | PeerHangUp

var eventNames = []struct {
	bit  Events
	name string
}{{Read, "read"}, {Priority, "priority"}, {Write, "write"}, {Error, "error"}, {HangUp, "hang-up"}, {PeerHangUp, "peer hang-up"}}

// String returns the names of the conditions joined by a bar, such as
// read|hang-up; none for the empty set.
func (e Events) String() string {
	if e == 0 {
		return "none"
	}
	var names []string
	for _, n := range eventNames {
		if e&n.bit != 0 {
			names = append(names, n.name)
			e &^= n.bit
		}
	}
	if e != 0 {
		names = append(names, fmt.Sprintf("%#x", uint32(e)))
	}
	return strings.Join(names, "|")
}

// Trigger selects how often a condition is reported.
type Trigger uint8

const (
	Level   Trigger = iota // at each turn while it lasts
	Edge                   // each time that it occurs again
	OneShot                // once, then not until Modify
)

// String returns level, edge or one-shot.
func (t Trigger) String() string {
	switch t {
	case Level:
		return "level"
	case Edge:
		return "edge"
	case OneShot:
		return "one-shot"
	}
	return fmt.Sprintf("Trigger(%d)", uint8(t))
}

// Event is a report about a registered descriptor.
type Event struct {
	FD     int
	Events Events // the watched conditions that hold, and Error and HangUp
	Value  any    // the value given to Add or Modify
}

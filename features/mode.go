// SPDX-License-Identifier: MIT

package features

import "fmt"

// Mode is how a package of this module reaches the kernel. Each package has the
// modes that it can work with under its own name, such as watch.ModeEpoll, and
// refuses the others.
type Mode uint8

const (
	ModeAuto  Mode = iota // what suits the system best, with a reason that Backend tells
	ModeRing              // io_uring: an error where it cannot be used
	ModePlain             // plain system calls
	ModeEpoll             // epoll
	ModeNet               // package net
)

var modeNames = [...]string{"auto", "io_uring", "plain", "epoll", "net"}

// String returns auto, io_uring, plain, epoll or net. All packages use these words,
// in Backend too.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// ParseMode returns the mode with a name that String returns; the empty name is
// auto.
func ParseMode(name string) (Mode, error) {
	for i, n := range modeNames {
		if n == name || name == "" {
			return Mode(i), nil
		}
	}
	return ModeAuto, fmt.Errorf("unknown mode %q: want auto, io_uring, plain, epoll or net", name)
}

// EnvBackend is the variable of the environment that names the backend. It is read
// at each call.
//
// With plain no package uses io_uring: every probe of this package answers that it
// is forbidden, and each package takes its fallback. With io_uring, epoll or net
// those packages that have this backend and have to choose one, watch and
// unet/event, take it where their options leave the choice open; in the others it
// means nothing.
const EnvBackend = "RINGSIDE_BACKEND"

// SPDX-License-Identifier: MIT

// Package features tells what of io_uring this process can use, and if it
// cannot, which line to change.
//
// # Answers
//
// Each HaveX function returns an error with one of four meanings:
//
//   - nil: yes.
//   - It matches [errors.ErrUnsupported]: the kernel, or the operating system,
//     lacks it. The message names the first Linux that has it.
//   - It matches [ErrForbidden]: a policy forbids it. The [ForbiddenError] names
//     the policy and what to change: a sysctl, the option of a container runtime
//     or service manager, a limit.
//   - Anything else: inconclusive, for example because the process ran out of
//     descriptors or memory. Ask again later.
//
// The first three are cached for the life of the process, except answers about the limit on
// locked memory, which other processes may change. A
// probe opens at most a few rings, for less than a millisecond as a rule, and
// nothing is left behind. All functions may be called concurrently, on every
// operating system; outside of Linux they answer errors.ErrUnsupported.
//
// # How it is known
//
// Nothing is decided by the version of the kernel: distributions move features
// between versions, and policies hide them. The sources, cheapest first, are
// the query operation (Linux 6.18), the feature bits of setup, the opcode
// probe, and a trial on a throw-away ring. Only to explain why a ring cannot
// be opened are the sysctls kernel.io_uring_disabled and io_uring_group, the
// seccomp state, the limit on locked memory, the security modules and, as the
// last hint, the kernel's release consulted: a filter that answers ENOSYS looks
// like a kernel without io_uring otherwise.
//
// # Switching io_uring off
//
// With RINGSIDE_BACKEND=plain in the environment all probes answer
// [ErrForbidden], and the packages of this module use their fallbacks. It is
// meant for support: to see whether a problem goes away.
//
// # IOPOLL
//
// There is no probe for polled I/O: it depends on the device and its driver's
// parameters, and only a read from that device shows it. [HaveSetup] reports whether
// the kernel knows the flag.
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

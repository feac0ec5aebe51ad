// SPDX-License-Identifier: MIT

// Package features reports which parts of io_uring this process can use. For a part
// that it cannot use, the error names the setting to change.
//
// # Results
//
// Each HaveX function returns an error with one of four meanings:
//
//   - nil: the feature is available.
//   - It matches [errors.ErrUnsupported]: the kernel or the operating system
//     lacks the feature. The message names the first Linux that has it.
//   - It matches [ErrForbidden]: a policy forbids the feature. The [ForbiddenError]
//     names the policy and the remedy: a sysctl, an option of a container runtime
//     or service manager, a limit.
//   - Any other error: the probe was inconclusive, for example because the process
//     ran out of descriptors or memory. Call the function again later.
//
// The first three results are cached for the life of the process, except those that
// depend on the limit on locked memory, which other processes may change. A probe opens
// a few rings at most, usually for less than a millisecond, and closes them. All
// functions may be called concurrently and on every operating system. Outside Linux they
// return errors.ErrUnsupported.
//
// # Sources
//
// No result depends on the kernel's version, because distributions backport features
// and policies hide them. The sources, cheapest first, are the query operation
// (Linux 6.18), the feature bits of setup, the opcode probe, and a trial on a temporary
// ring. Other sources only explain why a ring cannot be opened: the sysctls
// kernel.io_uring_disabled and io_uring_group, the seccomp state, the limit on locked
// memory, the security modules, and last the kernel's release. The release separates a
// seccomp filter that returns ENOSYS from a kernel without io_uring.
//
// # Switching io_uring off
//
// With RINGSIDE_BACKEND=plain in the environment all probes return [ErrForbidden], and
// the packages of this module use their fallbacks. Use it to find out whether a problem
// is related to io_uring. An unknown value has the same effect, so that a misspelt one does
// not permit io_uring.
//
// # IOPOLL
//
// There is no probe for polled I/O: it depends on the device and its driver's
// parameters, and only a read from that device shows it. [HaveSetup] reports whether
// the kernel knows the flag.
package features

import "fmt"

// Mode selects how a package of this module reaches the kernel. Each package exports
// the modes that it supports, such as watch.ModeEpoll, and refuses the others.
type Mode uint8

const (
	ModeAuto  Mode = iota // the best available; Backend returns the reason
	ModeRing              // io_uring: an error where it cannot be used
	ModePlain             // plain system calls
	ModeEpoll             // epoll
	ModeNet               // package net
)

var modeNames = [...]string{"auto", "io_uring", "plain", "epoll", "net"}

// String returns auto, io_uring, plain, epoll or net. Backend functions of all packages
// return these words.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// ParseMode is the inverse of [Mode.String]. The empty name is auto.
func ParseMode(name string) (Mode, error) {
	for i, n := range modeNames {
		if n == name || name == "" {
			return Mode(i), nil
		}
	}
	return ModeAuto, fmt.Errorf("unknown mode %q: want auto, io_uring, plain, epoll or net", name)
}

// EnvBackend is the environment variable that names the backend. Each probe reads it
// again.
//
// With plain, and with an unknown value, no package uses io_uring: every probe of this package
// returns [ErrForbidden]. The other values, io_uring, epoll and net, matter only to the
// packages that have several backends, watch and unet/event, and only where their
// options leave the choice open.
const EnvBackend = "RINGSIDE_BACKEND"

// SPDX-License-Identifier: MIT

package features

import (
	"errors"
	"fmt"
	"strings"
)

// ErrForbidden is matched by the error of a probe when the kernel could, but a
// policy says no: a sysctl, a seccomp filter, a security module, a limit, or
// the variable RINGSIDE_BACKEND. The error is a [*ForbiddenError].
var ErrForbidden = errors.New("io_uring is forbidden by policy")

// Policy is what forbids.
type Policy string

// The policies.
const (
	PolicySysctl      Policy = "sysctl"      // kernel.io_uring_disabled
	PolicySeccomp     Policy = "seccomp"     // a filter of system calls, as containers and services have
	PolicyLSM         Policy = "lsm"         // SELinux, AppArmor or another security module
	PolicyMemlock     Policy = "memlock"     // RLIMIT_MEMLOCK
	PolicyCapability  Policy = "capability"  // the kernel wants a privilege for this
	PolicyEnvironment Policy = "environment" // RINGSIDE_BACKEND=plain
)

// ForbiddenError says what forbids a feature and how to allow it. It matches
// [ErrForbidden], and never [errors.ErrUnsupported].
type ForbiddenError struct {
	Feature string // "io_uring", or a part of it
	Policy  Policy
	Reason  string // which rule applies, and how that is known
	Remedy  string // which line to change
	// Cause is the kernel's answer. It is not in the chain of errors, because
	// a filter may answer ENOSYS, which means the opposite of forbidden.
	Cause error
}

// Error returns feature, reason and remedy in one line.
func (e *ForbiddenError) Error() string {
	s := fmt.Sprintf("%s is forbidden: %s", e.Feature, e.Reason)
	if e.Remedy != "" {
		s += "; to allow it: " + e.Remedy
	}
	return s
}

// Is reports whether target is ErrForbidden.
func (e *ForbiddenError) Is(target error) bool { return target == ErrForbidden }

// UnsupportedError says that the kernel, or the operating system, lacks a
// feature. It matches [errors.ErrUnsupported].
type UnsupportedError struct {
	Feature string
	Since   string // the first Linux that has it, such as "6.1"; "" if that is unknown
	Reason  string // what was asked and what was the answer
	Remedy  string // what to do if not to run that Linux
	Cause   error  // the kernel's answer; may be nil
}

// Error returns a line such as "multishot accept needs Linux 5.19: this is
// 5.15.0".
func (e *UnsupportedError) Error() string {
	s := e.Feature + " needs "
	if e.Since != "" {
		s += "Linux " + e.Since
	} else {
		s += "a newer kernel"
	}
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return s
}

// Is reports whether target is errors.ErrUnsupported.
func (e *UnsupportedError) Is(target error) bool { return target == errors.ErrUnsupported }

// Unwrap returns the cause.
func (e *UnsupportedError) Unwrap() error { return e.Cause }

// inconclusiveError is an answer that says nothing about the feature.
type inconclusiveError struct {
	feature string
	cause   error
}

func (e *inconclusiveError) Error() string {
	return fmt.Sprintf("cannot tell whether %s works: %v", e.feature, strings.TrimPrefix(e.cause.Error(), "uring: "))
}

// Unwrap gives EMFILE, ENOMEM and so on, but nothing that would make the error
// match one of the conclusive answers.
func (e *inconclusiveError) Unwrap() error {
	if errors.Is(e.cause, errors.ErrUnsupported) || errors.Is(e.cause, ErrForbidden) {
		return nil
	}
	return e.cause
}

// conclusive reports whether a probe's answer stays true for the life of the
// process. A limit does not count: others may give memory back.
func conclusive(err error) bool {
	if f, ok := errors.AsType[*ForbiddenError](err); ok {
		return f.Policy != PolicyMemlock
	}
	return err == nil || errors.Is(err, errors.ErrUnsupported)
}

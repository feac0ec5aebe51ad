// SPDX-License-Identifier: MIT

package features

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/ringside-io/ringside/internal/probe"
)

// ErrForbidden is matched by the error of a probe when the kernel has the feature,
// but a policy forbids it: a sysctl, a seccomp filter, a security module, a limit,
// or the variable RINGSIDE_BACKEND. The error is a [*ForbiddenError].
var ErrForbidden = errors.New("io_uring is forbidden by policy")

// Policy is the kind of rule that forbids a feature.
type Policy string

// The policies.
const (
	PolicySysctl      Policy = "sysctl"      // kernel.io_uring_disabled
	PolicySeccomp     Policy = "seccomp"     // a filter of system calls, as containers and services have
	PolicyLSM         Policy = "lsm"         // SELinux, AppArmor or another security module
	PolicyMemlock     Policy = "memlock"     // RLIMIT_MEMLOCK
	PolicyCapability  Policy = "capability"  // the kernel requires a privilege for this
	PolicyEnvironment Policy = "environment" // RINGSIDE_BACKEND is plain or unknown
)

// ForbiddenError reports what forbids a feature and how to allow it. It matches
// [ErrForbidden], and never [errors.ErrUnsupported].
type ForbiddenError struct {
	Feature string // "io_uring", or a part of it
	Policy  Policy
	Reason  string // the rule that applies, and how the probe found it
	Remedy  string // the setting to change
	// Cause is the kernel's error. errors.Is does not find it, because a filter may
	// return ENOSYS, which usually means that the kernel lacks the feature.
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

// UnsupportedError reports that the kernel, or the operating system, lacks a
// feature. It matches [errors.ErrUnsupported].
type UnsupportedError struct {
	Feature string
	Since   string // the first Linux that has it, such as "6.1"; "" if that is unknown
	Reason  string // the probe and its result
	Remedy  string // the alternative to running that Linux
	Cause   error  // the kernel's error; may be nil
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

// inconclusiveError is the error of a probe that could not find out if the feature
// exists.
type inconclusiveError struct {
	feature string
	cause   error
}

func (e *inconclusiveError) Error() string {
	return fmt.Sprintf("cannot determine whether %s works: %v", e.feature, strings.TrimPrefix(e.cause.Error(), "uring: "))
}

// Unwrap returns EMFILE, ENOMEM and so on, but no error that would match one of the
// conclusive results.
func (e *inconclusiveError) Unwrap() error {
	if errors.Is(e.cause, errors.ErrUnsupported) || errors.Is(e.cause, ErrForbidden) {
		return nil
	}
	return e.cause
}

// conclusive reports whether a probe's result stays true for the life of the
// process. The result of a limit does not: other processes may release memory.
func conclusive(err error) bool {
	if f, ok := errors.AsType[*ForbiddenError](err); ok {
		return f.Policy != PolicyMemlock
	}
	return err == nil || errors.Is(err, errors.ErrUnsupported)
}

const ringCalls = "io_uring_setup, io_uring_enter and io_uring_register"

const anotherSandbox = "run the program in another sandbox, such as runc"

// newerKernel is the remedy for what a kernel lacks.
func newerKernel(since string) string {
	if since == "" {
		return "run a newer kernel"
	}
	want, err := probe.ParseVersion(since)
	if have, err2 := probe.Kernel(); err == nil && err2 == nil && !have.Less(want) {
		return "run a kernel that was built with it: this one is new enough"
	}
	return "run Linux " + since + " or later"
}

// seccompRemedy names the option of whatever runs the process.
func seccompRemedy(container string) string {
	const profile = "a seccomp profile that also allows " + ringCalls
	docker := "--security-opt seccomp=PROFILE.json, where PROFILE.json is " + profile
	kubernetes := "in the pod's securityContext, seccompProfile: {type: Localhost, localhostProfile: PROFILE.json}, where PROFILE.json is " + profile
	systemd := "in the unit, SystemCallFilter=io_uring_setup io_uring_enter io_uring_register"
	switch container {
	case "docker":
		return "docker run " + docker
	case "podman":
		return "podman run " + docker
	case "kubernetes":
		return kubernetes
	case "systemd":
		return systemd
	}
	return "give the process " + profile + " (docker or podman run " +
		"--security-opt seccomp=PROFILE.json; Kubernetes: seccompProfile of type Localhost; " +
		"systemd: SystemCallFilter=io_uring_setup io_uring_enter io_uring_register)"
}

// moduleRemedy names the tool of the security module.
func moduleRemedy(lsms []string) string {
	switch {
	case slices.Contains(lsms, "selinux"):
		return "look for io_uring in ausearch -m AVC, and allow what it shows, for example with audit2allow"
	case slices.Contains(lsms, "apparmor"):
		return "look for io_uring in the kernel log, and add the rule \"io_uring,\" to the AppArmor profile"
	}
	return "check the policy of the security module (see /sys/kernel/security/lsm and the kernel log)"
}

// memlockRemedy names the option that raises RLIMIT_MEMLOCK.
func memlockRemedy(container string) string {
	switch container {
	case "docker", "podman":
		return container + " run --ulimit memlock=-1"
	case "systemd":
		return "in the unit, LimitMEMLOCK=infinity"
	}
	return "ulimit -l unlimited, as root or after raising memlock in /etc/security/limits.d (docker: --ulimit memlock=-1; systemd: LimitMEMLOCK=infinity)"
}

// errnoName returns the symbol of the errnos that occur here.
func errnoName(errno syscall.Errno) string {
	switch errno {
	case syscall.EPERM:
		return "EPERM"
	case syscall.EACCES:
		return "EACCES"
	case syscall.ENOSYS:
		return "ENOSYS"
	case syscall.EOPNOTSUPP:
		return "EOPNOTSUPP"
	}
	return errno.Error()
}

// formatBytes prints a limit.
func formatBytes(n int64) string {
	if n == probe.Unlimited {
		return "unlimited"
	}
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for n != 0 && n%1024 == 0 && i < len(units)-1 {
		n, i = n/1024, i+1
	}
	return fmt.Sprintf("%d %s", n, units[i])
}

func orUnknown(s string) string {
	if s == "" {
		return "an unknown kernel"
	}
	return s
}

// SPDX-License-Identifier: MIT

package features

import (
	"fmt"
	"slices"
	"syscall"

	"github.com/ringside-io/ringside/internal/probe"
)

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
	return "ask the policy of the security module (see /sys/kernel/security/lsm and the kernel log)"
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

// SPDX-License-Identifier: MIT

package probe

import (
	"slices"
	"strings"
)

// securityModules returns the active modules that can refuse io_uring, and the
// label of the process.
func (r reader) securityModules() (names []string, context string) {
	for name := range strings.SplitSeq(r.line("sys/kernel/security/lsm"), ",") {
		if name != "" {
			names = append(names, name)
		}
	}
	// Containers do not see the list above, but often what is below.
	add := func(name string, active bool) {
		if active && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	add("selinux", r.exists("sys/fs/selinux/enforce"))
	add("apparmor", r.line("sys/module/apparmor/parameters/enabled") == "Y")
	return names, r.line("proc/self/attr/current")
}

// container guesses in what the process runs, so that a remedy can name the
// right option. A wrong guess costs a sentence, nothing else.
func (r reader) container(getenv func(string) string) string {
	cgroup := r.line("proc/self/cgroup")
	switch {
	case strings.Contains(r.text("proc/version"), "Sun Jan 10 15:06:54 PST 2016"):
		return "gvisor" // it reports this one build, whatever the host is
	case getenv("KUBERNETES_SERVICE_HOST") != "", strings.Contains(cgroup, "kubepods"):
		return "kubernetes"
	case r.exists("run/.containerenv"), strings.Contains(cgroup, "libpod"):
		return "podman"
	case r.exists(".dockerenv"), strings.Contains(cgroup, "docker"):
		return "docker"
	case getenv("container") != "": // set by the container manager, see systemd.exec(5)
		return getenv("container")
	case getenv("INVOCATION_ID") != "" && strings.HasSuffix(cgroup, ".service"):
		return "systemd"
	}
	return ""
}

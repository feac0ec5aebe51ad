// SPDX-License-Identifier: MIT

package probe

import (
	"bufio"
	"bytes"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Unlimited stands for RLIM_INFINITY: there is no limit.
const Unlimited = math.MaxInt64

// Environment has the settings outside of a process that decide if it can use io_uring.
// A pointer is nil if the setting could not be read.
type Environment struct {
	Release string // of the kernel

	Disabled *int // sysctl kernel.io_uring_disabled: 0, 1 or 2; since Linux 6.6
	Group    *int // sysctl kernel.io_uring_group, -1 for none

	Seccomp *int // 0 off, 1 strict, 2 filter
	Filters *int // number of seccomp filters, since Linux 5.9

	MemlockSoft, MemlockHard *int64 // RLIMIT_MEMLOCK in bytes, or Unlimited

	Capabilities *uint64 // effective, in the process's own user namespace
	InitialUser  bool    // that namespace is the initial one, judging by its uid map
	Groups       []int   // the effective group and the supplementary ones

	LSMs    []string // security modules that are active
	Context string   // the label that they gave to the process

	// Container is the kind of container in which the process seems to run: docker,
	// podman, kubernetes, systemd, gvisor, another name, or "" for nothing known.
	Container string

	CPU int // a processor on which the process may run
}

// Capability numbers.
const (
	CapIPCLock  = 14
	CapSysAdmin = 21
)

// Has reports whether the capability is in the effective set.
func (e *Environment) Has(capability uint) bool {
	return e.Capabilities != nil && *e.Capabilities>>capability&1 != 0
}

// Exempt reports whether kernel.io_uring_disabled = 1 lets the process through:
// with CAP_SYS_ADMIN on the host, or as a member of kernel.io_uring_group.
// Inside of another user namespace neither is known, and it reports false.
func (e *Environment) Exempt() bool {
	if !e.InitialUser {
		return false
	}
	return e.Has(CapSysAdmin) || e.Group != nil && *e.Group >= 0 && slices.Contains(e.Groups, *e.Group)
}

// LocksFreely reports whether RLIMIT_MEMLOCK does not bind the process: with
// CAP_IPC_LOCK on the host. In another user namespace the capability does not count,
// and io_uring charges locked memory to the user all the same.
func (e *Environment) LocksFreely() bool { return e.InitialUser && e.Has(CapIPCLock) }

// ReadEnvironment reads the environment of the calling process from the root of a file
// system and from its variables. It leaves out settings that cannot be read.
func ReadEnvironment(root fs.FS, getenv func(string) string) Environment {
	r := reader{root}
	e := Environment{
		Release:  r.line("proc/sys/kernel/osrelease"),
		Disabled: r.number("proc/sys/kernel/io_uring_disabled"),
		Group:    r.number("proc/sys/kernel/io_uring_group"),
	}
	e.readStatus(r.fields("proc/self/status"))
	e.readLimits(r.text("proc/self/limits"))
	e.InitialUser = strings.Join(strings.Fields(r.text("proc/self/uid_map")), " ") == "0 0 4294967295"
	e.LSMs, e.Context = r.securityModules()
	e.Container = r.container(getenv)
	return e
}

func (e *Environment) readStatus(status map[string]string) {
	e.Seccomp = number(status["Seccomp"])
	e.Filters = number(status["Seccomp_filters"])
	if v, err := strconv.ParseUint(status["CapEff"], 16, 64); err == nil {
		e.Capabilities = &v
	}
	gids := strings.Fields(status["Gid"]) // real, effective, saved, file system
	if len(gids) > 1 {
		gids = gids[1:2]
	}
	for _, field := range append(gids, strings.Fields(status["Groups"])...) {
		if n := number(field); n != nil {
			e.Groups = append(e.Groups, *n)
		}
	}
	first, _, _ := strings.Cut(status["Cpus_allowed_list"], ",")
	first, _, _ = strings.Cut(first, "-")
	if n := number(first); n != nil {
		e.CPU = *n
	}
}

// readLimits finds the line "Max locked memory  soft  hard  bytes".
func (e *Environment) readLimits(text string) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, "Max locked memory")
		if f := strings.Fields(rest); ok && len(f) >= 2 {
			e.MemlockSoft, e.MemlockHard = limit(f[0]), limit(f[1])
		}
	}
}

func limit(s string) *int64 {
	if s == "unlimited" {
		return new(int64(Unlimited))
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

// reader reads small files of the kernel; a file that cannot be read is empty.
type reader struct{ root fs.FS }

func (r reader) text(name string) string {
	b, err := fs.ReadFile(r.root, name)
	if err != nil {
		return ""
	}
	return string(b)
}

// line returns the content without the newline or NUL that ends it.
func (r reader) line(name string) string { return strings.TrimRight(r.text(name), "\n\x00 ") }

func (r reader) exists(name string) bool {
	_, err := fs.Stat(r.root, name)
	return err == nil
}

func (r reader) number(name string) *int { return number(r.line(name)) }

func number(s string) *int {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		return nil
	}
	return &n
}

// fields reads lines of the form "key: value".
func (r reader) fields(name string) map[string]string {
	m := map[string]string{}
	for s := bufio.NewScanner(bytes.NewReader([]byte(r.text(name)))); s.Scan(); {
		if key, value, ok := strings.Cut(s.Text(), ":"); ok {
			m[key] = strings.TrimSpace(value)
		}
	}
	return m
}

// securityModules returns the active modules that can refuse io_uring, and the
// label of the process.
func (r reader) securityModules() (names []string, context string) {
	for name := range strings.SplitSeq(r.line("sys/kernel/security/lsm"), ",") {
		if name != "" {
			names = append(names, name)
		}
	}
	// In a container the list above is not visible, but often the files below are.
	add := func(name string, active bool) {
		if active && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	add("selinux", r.exists("sys/fs/selinux/enforce"))
	add("apparmor", r.line("sys/module/apparmor/parameters/enabled") == "Y")
	return names, r.line("proc/self/attr/current")
}

// container guesses the container of the process, so that a remedy can name the right
// option. A wrong guess only makes the remedy less exact.
func (r reader) container(getenv func(string) string) string {
	cgroup := r.line("proc/self/cgroup")
	switch {
	case strings.Contains(r.text("proc/version"), "Sun Jan 10 15:06:54 PST 2016"):
		return "gvisor" // gVisor reports this build on every host
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

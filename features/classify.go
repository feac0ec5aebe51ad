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

const nameIOURing = "io_uring"

// explain turns the error of opening and using a plain ring into one of the
// package's errors.
func (h *host) explain(err error) error {
	if err == nil {
		return nil
	}
	errno, _ := errors.AsType[syscall.Errno](err)
	c := &cause{env: h.environment(), entered: h.enter(0), errno: errno, err: err}
	switch errno {
	case syscall.ENOSYS:
		return c.noSys()
	case syscall.EPERM:
		return c.noPermission()
	case syscall.EACCES:
		if c.filtered() || c.seccomp() && c.call() != callSetup {
			return c.bySeccomp()
		}
		return c.byModule()
	case syscall.EOPNOTSUPP:
		if c.seccomp() {
			return c.bySeccomp()
		}
		return c.unsupported("the sandbox around this process does not implement it", anotherSandbox)
	case syscall.ENOMEM:
		return c.noMemory()
	case syscall.EINVAL:
		return c.unsupported(fmt.Sprintf("the kernel %srefuses a plain ring: %v", c.release(), err), "")
	}
	return &inconclusiveError{nameIOURing, err}
}

// cause has the facts about a ring that failed.
type cause struct {
	env     probe.Environment
	entered syscall.Errno // of io_uring_enter on a bad descriptor
	errno   syscall.Errno
	err     error
}

func (c *cause) unsupported(reason, remedy string) error {
	return &UnsupportedError{Feature: nameIOURing, Since: sinceIOURing, Reason: reason, Remedy: remedy, Cause: c.err}
}

func (c *cause) forbidden(by Policy, reason, remedy string) error {
	return &ForbiddenError{Feature: nameIOURing, Policy: by, Reason: reason, Remedy: remedy, Cause: c.err}
}

// The system calls that can fail when a ring is opened and used.
const (
	callSetup    = "io_uring_setup"
	callEnter    = "io_uring_enter"
	callRegister = "io_uring_register"
)

// call returns the system call that failed.
func (c *cause) call() string {
	if c.err != nil {
		for _, call := range []string{callEnter, callRegister} {
			if strings.HasPrefix(c.err.Error(), call) {
				return call
			}
		}
	}
	return callSetup
}

// reached reports whether io_uring_enter got to the kernel's own check of the
// descriptor, which means that the kernel has io_uring and no filter refuses that call.
func (c *cause) reached() bool { return c.entered == syscall.EBADF }

// filtered reports whether io_uring_enter was refused by a filter: the kernel itself
// never refuses it for lack of permission. ENOSYS proves nothing.
func (c *cause) filtered() bool {
	return c.entered == syscall.EPERM || c.entered == syscall.EACCES
}

// seccomp reports whether a filter is on.
func (c *cause) seccomp() bool { return c.env.Seccomp != nil && *c.env.Seccomp != 0 }

// builtIn reports whether the running kernel has io_uring: it shows the sysctl, or
// one of its calls was reached, or it is of an age at which only a rare
// configuration leaves it out. A filter hides everything else, so the version
// is used here, for a cause and not for a feature.
func (c *cause) builtIn() bool {
	if c.env.Disabled != nil || c.reached() {
		return true
	}
	v, err := probe.ParseVersion(c.env.Release)
	return err == nil && !v.Less(probe.Version{Major: 5, Minor: 1})
}

// noSys explains ENOSYS: a sandbox, a filter, an old kernel, or one built without io_uring.
func (c *cause) noSys() error {
	switch {
	case c.env.Container == "gvisor":
		return c.unsupported("gVisor does not implement it", anotherSandbox)
	case c.seccomp() && c.builtIn(), c.reached():
		return c.bySeccomp()
	case c.env.Disabled != nil:
		return c.forbidden(PolicySeccomp, "io_uring_setup returns ENOSYS although this kernel shows kernel.io_uring_disabled, so it is intercepted",
			"let whatever supervises this process pass "+ringCalls)
	case !c.builtIn():
		return c.unsupported("this is "+orUnknown(c.env.Release), "")
	}
	reason := "the kernel " + c.release() + "was built without it"
	if c.env.Seccomp == nil {
		reason += ", or a filter hides it: /proc/self/status cannot be read"
	}
	return c.unsupported(reason, "run a kernel that was built with CONFIG_IO_URING=y")
}

// noPermission explains EPERM and EACCES: the sysctl, a filter, or a security module.
func (c *cause) noPermission() error {
	// The sysctl refuses io_uring_setup only.
	if d := c.env.Disabled; c.call() == callSetup && d != nil && (*d >= 2 || *d == 1 && !c.env.Exempt()) {
		return c.bySysctl(*d)
	}
	if c.filtered() || c.seccomp() {
		return c.bySeccomp()
	}
	return c.byModule()
}

func (c *cause) bySysctl(value int) error {
	reason := fmt.Sprintf("the sysctl kernel.io_uring_disabled is %d, which forbids it to every process", value)
	remedy := "run, as root on the host, sysctl -w kernel.io_uring_disabled=0"
	if value == 1 {
		group := "is not set"
		if g := c.env.Group; g != nil && *g >= 0 {
			group = fmt.Sprintf("is %d", *g)
		}
		reason = "the sysctl kernel.io_uring_disabled is 1, which forbids it to processes without CAP_SYS_ADMIN" +
			" that are not in the group kernel.io_uring_group, which " + group
		remedy += ", or let the process be in a group GID and run sysctl -w kernel.io_uring_group=GID"
	}
	remedy += " (and keep it in /etc/sysctl.d)"
	if c.filtered() {
		reason += "; a seccomp filter forbids it, too"
		remedy += "; then " + seccompRemedy(c.env.Container)
	}
	return c.forbidden(PolicySysctl, reason, remedy)
}

func (c *cause) bySeccomp() error {
	reason := fmt.Sprintf("a seccomp filter returns %s for its system calls", errnoName(c.errno))
	switch call := c.call(); {
	case call == callRegister:
		reason = fmt.Sprintf("a seccomp filter returns %s for io_uring_register, although it lets io_uring_setup pass", errnoName(c.errno))
	case !c.filtered() && c.errno != syscall.ENOSYS:
		reason = fmt.Sprintf("%s returns %s and a seccomp filter is active", call, errnoName(c.errno))
	}
	return c.forbidden(PolicySeccomp, reason, seccompRemedy(c.env.Container))
}

func (c *cause) byModule() error {
	module := "a security module"
	if names := refusers(c.env.LSMs); names != "" {
		module = "a security module (" + names + ")"
	}
	reason := fmt.Sprintf("%s returns %s and neither kernel.io_uring_disabled nor seccomp explains it: probably %s", c.call(), errnoName(c.errno), module)
	if c.env.Context != "" {
		reason += fmt.Sprintf(", which runs this process as %q", c.env.Context)
	}
	return c.forbidden(PolicyLSM, reason, moduleRemedy(c.env.LSMs))
}

// noMemory explains ENOMEM. Rings are charged to the limit on locked memory
// before Linux 5.12 and, as seen on 6.18 but not on 6.12, again on newer
// kernels, with or without IORING_FEAT_NATIVE_WORKERS.
func (c *cause) noMemory() error {
	if !binding(&c.env) {
		return &inconclusiveError{nameIOURing, c.err}
	}
	return c.forbidden(PolicyMemlock, fmt.Sprintf(
		"there is no memory for a ring; this user may lock %s (RLIMIT_MEMLOCK), and on some kernels rings count", formatBytes(*c.env.MemlockSoft)),
		memlockRemedy(c.env.Container))
}

// binding reports whether RLIMIT_MEMLOCK limits the process.
func binding(e *probe.Environment) bool {
	return e.MemlockSoft != nil && *e.MemlockSoft != probe.Unlimited && !e.LocksFreely()
}

// release returns the kernel's release with a space, for a sentence.
func (c *cause) release() string {
	if c.env.Release == "" {
		return ""
	}
	return c.env.Release + " "
}

// refusers are the active modules that have a hook for io_uring.
func refusers(lsms []string) string {
	var names []string
	for _, name := range []string{"selinux", "apparmor", "smack", "bpf"} {
		if slices.Contains(lsms, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, " or ")
}

// explainFeature turns the error of a probe for a part of io_uring, on a host where
// rings work, into one of the package's errors.
func (h *host) explainFeature(feature, since string, err error) error {
	if err == nil {
		return nil
	}
	if l, ok := errors.AsType[*lackingError](err); ok {
		return &UnsupportedError{Feature: feature, Since: since, Reason: l.reason, Cause: l.cause}
	}
	if d, ok := errors.AsType[*deniedError](err); ok {
		return h.explainDenied(feature, d)
	}
	if errors.Is(err, syscall.ENOMEM) {
		return h.explainMemory(feature, err)
	}
	return &inconclusiveError{feature, err}
}

// explainDenied explains a refusal where plain rings work.
func (h *host) explainDenied(feature string, d *deniedError) error {
	env := h.environment()
	reason := fmt.Sprintf("the kernel refuses it to this process (%v)", d)
	if refusers(env.LSMs) != "" || env.Context != "" {
		return &ForbiddenError{Feature: feature, Policy: PolicyLSM, Cause: d.cause,
			Reason: reason + ", by a security module or because a capability is missing", Remedy: moduleRemedy(env.LSMs)}
	}
	remedy := "give the process the capability that the kernel wants"
	if feature == nameSQPoll {
		remedy += ": CAP_SYS_ADMIN before Linux 5.11, CAP_SYS_NICE before 5.13, none since"
	}
	return &ForbiddenError{Feature: feature, Policy: PolicyCapability, Cause: d.cause, Reason: reason, Remedy: remedy}
}

// explainMemory explains ENOMEM where plain rings work: pinned memory counts
// against the limit on every kernel.
func (h *host) explainMemory(feature string, err error) error {
	env := h.environment()
	if !binding(&env) {
		return &inconclusiveError{feature, err}
	}
	return &ForbiddenError{Feature: feature, Policy: PolicyMemlock, Cause: err,
		Reason: fmt.Sprintf("it needs locked memory, of which this user may have %s (RLIMIT_MEMLOCK)", formatBytes(*env.MemlockSoft)),
		Remedy: memlockRemedy(env.Container)}
}

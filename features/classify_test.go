// SPDX-License-Identifier: MIT

package features

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/probe"
	"github.com/ringside-io/ringside/uring"
)

// fake returns a host on which rings fail with err, in the given environment.
func fake(err error, entered syscall.Errno, env probe.Environment) *host {
	h := newHost()
	h.os = "linux"
	h.open = func(*uring.Options) (*uring.Ring, error) { return nil, err }
	h.query = func() (uring.KernelInfo, error) { return uring.KernelInfo{}, syscall.EINVAL }
	h.enter = func(uint32) syscall.Errno { return entered }
	h.environment = func() probe.Environment { return env }
	h.getenv = func(string) string { return "" }
	return h
}

// setupError is the error that package uring returns for an errno.
func setupError(errno syscall.Errno) error { return os.NewSyscallError("io_uring_setup", errno) }

var (
	off      = new(0)
	filtered = new(2)
)

func TestClassify(t *testing.T) {
	const (
		modern = "6.12.9"
		old    = "4.19.0"
	)
	admin := new(uint64(1<<probe.CapSysAdmin | 1<<probe.CapIPCLock))
	tests := []struct {
		name    string
		errno   syscall.Errno
		entered syscall.Errno
		env     probe.Environment
		want    probe.Answer
		policy  Policy
		remedy  string // Reason contains it
		reason  string // Remedy contains it
	}{
		{"sysctl 2", syscall.EPERM, syscall.EBADF, probe.Environment{Release: modern, Disabled: new(2), Seccomp: off, InitialUser: true, Capabilities: admin},
			probe.Forbidden, PolicySysctl, "sysctl -w kernel.io_uring_disabled=0", "kernel.io_uring_disabled is 2"},
		{"sysctl 1", syscall.EPERM, syscall.EBADF, probe.Environment{Release: modern, Disabled: new(1), Group: new(-1), Seccomp: off, InitialUser: true},
			probe.Forbidden, PolicySysctl, "kernel.io_uring_group=GID", "io_uring_group, which is not set"},
		{"sysctl 1 and another group", syscall.EPERM, syscall.EBADF, probe.Environment{Release: modern, Disabled: new(1), Group: new(77), Groups: []int{1}, Seccomp: off, InitialUser: true},
			probe.Forbidden, PolicySysctl, "", "which is 77"},
		{"sysctl 1, member, filter", syscall.EPERM, syscall.EPERM, probe.Environment{Release: modern, Disabled: new(1), Group: new(77), Groups: []int{77}, Seccomp: filtered, InitialUser: true},
			probe.Forbidden, PolicySeccomp, "seccomp", "seccomp filter returns EPERM"},
		{"sysctl 1, administrator, module", syscall.EPERM, syscall.EBADF, probe.Environment{Release: modern, Disabled: new(1), Seccomp: off, InitialUser: true, Capabilities: admin},
			probe.Forbidden, PolicyLSM, "security module", "probably a security module"},
		{"sysctl 2 and filter", syscall.EPERM, syscall.EPERM, probe.Environment{Release: modern, Disabled: new(2), Seccomp: filtered, Container: "docker"},
			probe.Forbidden, PolicySysctl, "then docker run --security-opt seccomp=", "a seccomp filter forbids it, too"},
		{"filter in Docker", syscall.EPERM, syscall.EPERM, probe.Environment{Release: modern, Disabled: new(0), Seccomp: filtered, Container: "docker"},
			probe.Forbidden, PolicySeccomp, "docker run --security-opt seccomp=", "seccomp filter returns EPERM"},
		{"filter in Podman", syscall.EPERM, syscall.EPERM, probe.Environment{Release: modern, Seccomp: filtered, Container: "podman"},
			probe.Forbidden, PolicySeccomp, "podman run --security-opt seccomp=", ""},
		{"filter in Kubernetes", syscall.EPERM, syscall.EPERM, probe.Environment{Release: modern, Seccomp: filtered, Container: "kubernetes"},
			probe.Forbidden, PolicySeccomp, "localhostProfile", ""},
		{"filter in a service", syscall.EPERM, syscall.EPERM, probe.Environment{Release: modern, Seccomp: filtered, Container: "systemd"},
			probe.Forbidden, PolicySeccomp, "SystemCallFilter=io_uring_setup", ""},
		{"filter somewhere", syscall.EPERM, syscall.EPERM, probe.Environment{Release: modern, Seccomp: filtered},
			probe.Forbidden, PolicySeccomp, "Kubernetes: seccompProfile", ""},
		{"filter, nothing readable", syscall.EPERM, syscall.EPERM, probe.Environment{},
			probe.Forbidden, PolicySeccomp, "seccomp", ""},
		{"filter on setup only", syscall.EPERM, syscall.EBADF, probe.Environment{Release: modern, Disabled: new(0), Seccomp: filtered},
			probe.Forbidden, PolicySeccomp, "", "a seccomp filter is active"},
		{"filter that answers EACCES", syscall.EACCES, syscall.EACCES, probe.Environment{Release: modern, Seccomp: filtered},
			probe.Forbidden, PolicySeccomp, "", "seccomp filter returns EACCES"},
		{"SELinux", syscall.EACCES, syscall.EBADF, probe.Environment{Release: modern, Disabled: new(0), Seccomp: off, LSMs: []string{"capability", "selinux"}, Context: "container_t"},
			probe.Forbidden, PolicyLSM, "ausearch", `(selinux), which runs this process as "container_t"`},
		{"AppArmor", syscall.EPERM, syscall.EBADF, probe.Environment{Release: modern, Disabled: new(0), Seccomp: off, LSMs: []string{"apparmor"}},
			probe.Forbidden, PolicyLSM, "AppArmor profile", ""},
		{"no sign of a policy", syscall.EPERM, syscall.EBADF, probe.Environment{Release: modern, Disabled: new(0), Seccomp: off},
			probe.Forbidden, PolicyLSM, "security module", ""},

		{"filter that returns ENOSYS", syscall.ENOSYS, syscall.ENOSYS, probe.Environment{Release: modern, Disabled: new(0), Seccomp: filtered, Container: "docker"},
			probe.Forbidden, PolicySeccomp, "docker run", "seccomp filter returns ENOSYS"},
		{"the same before the sysctl", syscall.ENOSYS, syscall.ENOSYS, probe.Environment{Release: "5.15.0", Seccomp: filtered},
			probe.Forbidden, PolicySeccomp, "", "seccomp filter returns ENOSYS"},
		{"ENOSYS on setup only", syscall.ENOSYS, syscall.EBADF, probe.Environment{Release: modern, Seccomp: off},
			probe.Forbidden, PolicySeccomp, "", ""},
		{"intercepted", syscall.ENOSYS, syscall.ENOSYS, probe.Environment{Release: modern, Disabled: new(0), Seccomp: off},
			probe.Forbidden, PolicySeccomp, "supervises", "intercepted"},
		{"old kernel", syscall.ENOSYS, syscall.ENOSYS, probe.Environment{Release: old, Seccomp: off},
			probe.Unsupported, "", "", "this is 4.19.0"},
		{"old kernel and a filter", syscall.ENOSYS, syscall.ENOSYS, probe.Environment{Release: old, Seccomp: filtered},
			probe.Unsupported, "", "", "this is 4.19.0"},
		{"left out of the kernel", syscall.ENOSYS, syscall.ENOSYS, probe.Environment{Release: modern, Seccomp: off},
			probe.Unsupported, "", "CONFIG_IO_URING=y", "built without it"},
		{"ENOSYS, nothing readable", syscall.ENOSYS, syscall.ENOSYS, probe.Environment{},
			probe.Unsupported, "", "", "an unknown kernel"},
		{"ENOSYS, status not readable", syscall.ENOSYS, syscall.ENOSYS, probe.Environment{Release: modern},
			probe.Unsupported, "", "", "/proc/self/status cannot be read"},
		{"gVisor", syscall.ENOSYS, syscall.ENOSYS, probe.Environment{Release: "4.4.0", Seccomp: off, Container: "gvisor"},
			probe.Unsupported, "", "another sandbox", "gVisor"},
		{"sandbox", syscall.EOPNOTSUPP, syscall.EOPNOTSUPP, probe.Environment{Release: modern, Seccomp: off},
			probe.Unsupported, "", "another sandbox", "sandbox"},
		{"sandbox by a filter", syscall.EOPNOTSUPP, syscall.EOPNOTSUPP, probe.Environment{Release: modern, Seccomp: filtered},
			probe.Forbidden, PolicySeccomp, "", "EOPNOTSUPP"},
		{"strange kernel", syscall.EINVAL, syscall.EBADF, probe.Environment{Release: modern, Seccomp: off},
			probe.Unsupported, "", "", "refuses a plain ring"},

		{"memlock 64 KiB", syscall.ENOMEM, syscall.EBADF, probe.Environment{Release: "5.10.0", Seccomp: off, MemlockSoft: new(int64(65536)), Container: "docker"},
			probe.Forbidden, PolicyMemlock, "docker run --ulimit memlock=-1", "64 KiB"},
		{"the same in a service", syscall.ENOMEM, syscall.EBADF, probe.Environment{Release: modern, MemlockSoft: new(int64(65536)), Container: "systemd"},
			probe.Forbidden, PolicyMemlock, "LimitMEMLOCK", ""},
		{"the same somewhere", syscall.ENOMEM, syscall.EBADF, probe.Environment{MemlockSoft: new(int64(1000))},
			probe.Forbidden, PolicyMemlock, "ulimit -l", "1000 bytes"},
		{"the same with CAP_IPC_LOCK", syscall.ENOMEM, syscall.EBADF, probe.Environment{Release: "5.10.0", MemlockSoft: new(int64(65536)), InitialUser: true, Capabilities: admin},
			probe.Inconclusive, "", "", ""},
		{"the same as root of another user namespace", syscall.ENOMEM, syscall.EBADF, probe.Environment{Release: modern, MemlockSoft: new(int64(65536)), Capabilities: admin},
			probe.Forbidden, PolicyMemlock, "ulimit -l", "64 KiB"},
		{"memlock unlimited", syscall.ENOMEM, syscall.EBADF, probe.Environment{Release: "5.10.0", MemlockSoft: new(int64(probe.Unlimited))},
			probe.Inconclusive, "", "", ""},
		{"memlock unknown", syscall.ENOMEM, syscall.EBADF, probe.Environment{}, probe.Inconclusive, "", "", ""},
		{"descriptors", syscall.EMFILE, syscall.EBADF, probe.Environment{Release: modern, Seccomp: off}, probe.Inconclusive, "", "", ""},
		{"descriptors of all", syscall.ENFILE, syscall.EBADF, probe.Environment{Release: modern, Seccomp: off}, probe.Inconclusive, "", "", ""},
		{"again", syscall.EAGAIN, syscall.EBADF, probe.Environment{Release: modern, Seccomp: off}, probe.Inconclusive, "", "", ""},
		{"interrupted", syscall.EINTR, syscall.EBADF, probe.Environment{Release: modern, Seccomp: off}, probe.Inconclusive, "", "", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := fake(setupError(test.errno), test.entered, test.env)
			err := h.haveIOURing()
			got, reason, remedy := describe(err)
			if got != test.want {
				t.Fatalf("got %s (%v), want %s", got, err, test.want)
			}
			checkAnswer(t, err, got)
			if f, ok := errors.AsType[*ForbiddenError](err); ok {
				if f.Policy != test.policy {
					t.Errorf("policy %q, want %q", f.Policy, test.policy)
				}
				if f.Reason == "" || f.Remedy == "" || !errors.Is(f.Cause, test.errno) {
					t.Errorf("incomplete: %+v", f)
				}
			}
			if !strings.Contains(reason, test.reason) || !strings.Contains(remedy, test.remedy) {
				t.Errorf("reason %q must contain %q, remedy %q must contain %q", reason, test.reason, remedy, test.remedy)
			}
		})
	}
}

// checkAnswer fails when an error matches other sentinel errors than its result implies.
func checkAnswer(t *testing.T, err error, a probe.Answer) {
	t.Helper()
	if got := errors.Is(err, ErrForbidden); got != (a == probe.Forbidden) {
		t.Errorf("%s: matches ErrForbidden: %v (%v)", a, got, err)
	}
	if got := errors.Is(err, errors.ErrUnsupported); got != (a == probe.Unsupported) {
		t.Errorf("%s: matches ErrUnsupported: %v (%v)", a, got, err)
	}
	if a == probe.Unsupported && !strings.Contains(err.Error(), "needs Linux ") {
		t.Errorf("%q does not name a version", err)
	}
	if a == probe.Yes != (err == nil) {
		t.Errorf("%s: %v", a, err)
	}
}

// An inconclusive result keeps its errno, unless the errno would make it look conclusive.
func TestInconclusive(t *testing.T) {
	err := fake(setupError(syscall.EMFILE), syscall.EBADF, probe.Environment{}).haveIOURing()
	if !errors.Is(err, syscall.EMFILE) {
		t.Errorf("%v does not match EMFILE", err)
	}
	err = &inconclusiveError{"x", fmt.Errorf("socket: %w", syscall.EOPNOTSUPP)}
	checkAnswer(t, err, probe.Inconclusive)
}

// Where io_uring is missing, the result for a part of it names that part.
func TestPartOfNothing(t *testing.T) {
	h := fake(setupError(syscall.ENOSYS), syscall.ENOSYS, probe.Environment{Release: "4.19.0", Seccomp: off})
	for _, test := range []struct {
		err  error
		want string
	}{
		{h.haveOp(uring.OpFutexWait), "opcode FUTEX_WAIT needs Linux 6.7: this is 4.19.0"},
		{h.haveOp(200), "opcode OP_200 needs a newer kernel: this is 4.19.0"},
		{h.haveSetup(uring.SetupNoSQArray), "setup flag NO_SQARRAY needs Linux 6.6: this is 4.19.0"},
		{h.haveSetup(1 << 30), "setup flag 0x40000000 needs a newer kernel: this is 4.19.0"},
		{h.haveFeature(uring.FeatRWAttr), "feature RW_ATTR needs Linux 6.14: this is 4.19.0"},
		{h.haveEnter(abi.IORING_ENTER_ABS_TIMER), "enter flag ABS_TIMER needs Linux 6.12: this is 4.19.0"},
		{h.haveRegister(uring.OpRegisterClock), "register operation REGISTER_CLOCK needs Linux 6.12: this is 4.19.0"},
		{h.have(multishotRecv), "multishot receive needs Linux 6.0: this is 4.19.0"},
		{h.haveSetup(0), "io_uring needs Linux 5.6: this is 4.19.0"},
	} {
		if test.err == nil || test.err.Error() != test.want {
			t.Errorf("got  %v\nwant %s", test.err, test.want)
		}
		if !errors.Is(test.err, errors.ErrUnsupported) {
			t.Errorf("%v does not match ErrUnsupported", test.err)
		}
	}
}

func TestOtherSystem(t *testing.T) {
	h := fake(nil, 0, probe.Environment{})
	h.os = "plan9"
	h.open = func(*uring.Options) (*uring.Ring, error) { panic("opened a ring") }
	for _, b := range behaviours {
		if err := h.have(b); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "this is plan9") {
			t.Errorf("%s: %v", b.name, err)
		}
	}
	r := h.collect()
	if r.Usable || r.Answer != probe.Unsupported || r.Kernel != "" || r.Memlock.Soft != nil {
		t.Errorf("report %+v", r)
	}
}

// The results of trials on a host where rings work.
func TestExplainFeature(t *testing.T) {
	limited := probe.Environment{MemlockSoft: new(int64(65536))}
	tests := []struct {
		name   string
		err    error
		env    probe.Environment
		want   probe.Answer
		policy Policy
	}{
		{"yes", nil, probe.Environment{}, probe.Yes, ""},
		{"EINVAL", answer("X", syscall.EINVAL), probe.Environment{}, probe.Unsupported, ""},
		{"EOPNOTSUPP", answer("X", syscall.EOPNOTSUPP), probe.Environment{}, probe.Unsupported, ""},
		{"ENOSYS", answer("X", syscall.ENOSYS), probe.Environment{}, probe.Unsupported, ""},
		{"EPERM", answer("X", syscall.EPERM), probe.Environment{}, probe.Forbidden, PolicyCapability},
		{"EACCES under SELinux", answer("X", syscall.EACCES), probe.Environment{LSMs: []string{"selinux"}}, probe.Forbidden, PolicyLSM},
		{"ENOMEM", answer("X", syscall.ENOMEM), probe.Environment{}, probe.Inconclusive, ""},
		{"ENOMEM, memlock", answer("X", syscall.ENOMEM), limited, probe.Forbidden, PolicyMemlock},
		{"EMFILE", answer("X", syscall.EMFILE), probe.Environment{}, probe.Inconclusive, ""},
		{"a socket's EOPNOTSUPP", os.NewSyscallError("socket", syscall.EOPNOTSUPP), probe.Environment{}, probe.Inconclusive, ""},
		{"a socket's EPERM", os.NewSyscallError("socket", syscall.EPERM), probe.Environment{}, probe.Inconclusive, ""},
		{"no completion", errors.New("no completion"), probe.Environment{}, probe.Inconclusive, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := fake(nil, 0, test.env).explainFeature("x", "6.1", test.err)
			got, _, _ := describe(err)
			if got != test.want {
				t.Fatalf("got %s (%v), want %s", got, err, test.want)
			}
			checkAnswer(t, err, got)
			if f, ok := errors.AsType[*ForbiddenError](err); ok && f.Policy != test.policy {
				t.Errorf("policy %q, want %q", f.Policy, test.policy)
			}
		})
	}
}

// The result of a refused trial of SQPOLL names the capability.
func TestRefusedSQPoll(t *testing.T) {
	err := fake(nil, 0, probe.Environment{}).explainFeature(nameSQPoll, "5.11", answer("io_uring_setup", syscall.EPERM))
	if f, ok := errors.AsType[*ForbiddenError](err); !ok || !strings.Contains(f.Remedy, "CAP_SYS_NICE") {
		t.Errorf("got %v", err)
	}
}

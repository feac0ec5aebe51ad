// SPDX-License-Identifier: MIT

package features_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/internal/probe"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/internal/testing/seccomp/filter"
	"github.com/ringside-io/ringside/uring"
)

// childEnv holds a situation in JSON. It turns the test binary into a child that enters the
// situation and prints its report.
const childEnv = "RINGSIDE_TEST_FEATURES"

// situation is the environment of a process. Its zero value changes nothing.
type situation struct {
	Errno   syscall.Errno // errno of a seccomp filter
	Call    uint32        // the only system call that it refuses; 0 means all of io_uring
	UID     int
	Memlock uint64 // bytes
	Files   uint64 // descriptors

	Namespace bool // as root of a new user namespace
}

// child returns the exit code.
func child(spec string) int {
	var s situation
	err := json.Unmarshal([]byte(spec), &s)
	if err == nil {
		err = s.enter()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	out := childReport{Report: probe.Collect()}
	if s.Files != 0 { // the shortage ends here
		if err := setLimit(unix.RLIMIT_NOFILE, 256); err != nil {
			out.Error = err.Error()
		}
	}
	out.Again = fmt.Sprint(features.HaveIOURing())
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		return 1
	}
	return 0
}

func setLimit(what int, n uint64) error {
	var l unix.Rlimit
	if err := unix.Getrlimit(what, &l); err != nil {
		return err
	}
	l.Cur = n
	return unix.Setrlimit(what, &l)
}

func (s *situation) enter() error {
	if s.Memlock != 0 {
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: s.Memlock, Max: s.Memlock}); err != nil {
			return err
		}
	}
	if s.UID != 0 {
		if err := ringtest.Become(s.UID); err != nil {
			return err
		}
	}
	if s.Errno != 0 {
		install := filter.Install
		if s.Call != 0 {
			install = func(errno syscall.Errno) error { return filter.Forbid(errno, s.Call, s.Call) }
		}
		if err := install(s.Errno); err != nil {
			return err
		}
	}
	if s.Files != 0 {
		return setLimit(unix.RLIMIT_NOFILE, s.Files)
	}
	return nil
}

// childReport is the output of a child.
type childReport struct {
	probe.Report
	Again string // the second result of HaveIOURing
	Error string
}

// report runs a child in a situation.
func report(t *testing.T, s situation, env ...string) childReport {
	t.Helper()
	spec, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	// The race detector would make each child sleep for a second before its exit.
	cmd.Env = append(append(os.Environ(), childEnv+"="+string(spec), "GORACE=atexit_sleep_ms=0"), env...)
	cmd.Stderr = os.Stderr
	if s.Namespace {
		cmd.SysProcAttr = namespace()
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("child: %v\n%s", err, out)
	}
	var r childReport
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return r
}

// forbidden checks a report about a host where io_uring is forbidden.
func forbidden(t *testing.T, r childReport, by features.Policy, reason string) {
	t.Helper()
	if r.Usable || r.Answer != probe.Forbidden || r.Policy != string(by) {
		t.Fatalf("usable %v, %s, policy %q, reason %q; want forbidden by %q", r.Usable, r.Answer, r.Policy, r.Reason, by)
	}
	if !strings.Contains(r.Reason, reason) || r.Remedy == "" {
		t.Errorf("reason %q must contain %q; remedy %q", r.Reason, reason, r.Remedy)
	}
	for kind, table := range tables(r.Report) {
		for _, e := range table {
			if e.Supported || e.Answer != probe.Forbidden {
				t.Errorf("%s %s: %s", kind, e.Name, e.Answer)
			}
			if e.Reason != "" || e.Remedy != "" {
				t.Errorf("%s %s repeats the reason of the report", kind, e.Name)
			}
		}
	}
}

// Promise: cli/probe-names-obstacle
func TestUnderFilter(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EPERM, syscall.ENOSYS, syscall.EACCES} {
		t.Run(unix.ErrnoName(errno), func(t *testing.T) {
			r := underFilter(t, situation{Errno: errno}, "seccomp filter returns "+unix.ErrnoName(errno))
			if r.Seccomp == nil || *r.Seccomp != 2 {
				t.Errorf("seccomp %v, want 2", r.Seccomp)
			}
		})
	}
}

// TestRegisterFiltered refuses io_uring_register only.
func TestRegisterFiltered(t *testing.T) {
	ringtest.NeedRing(t)
	for _, errno := range []syscall.Errno{syscall.EPERM, syscall.ENOSYS, syscall.EACCES} {
		s := situation{Errno: errno, Call: unix.SYS_IO_URING_REGISTER}
		forbidden(t, report(t, s), features.PolicySeccomp, "returns "+unix.ErrnoName(errno)+" for io_uring_register")
	}
}

func TestUnderFilterUnprivileged(t *testing.T) {
	const nobody = 65534
	ringtest.NeedUser(t, nobody)
	underFilter(t, situation{Errno: syscall.EPERM, UID: nobody}, "seccomp")
}

// underFilter returns the report of a child under a filter, which must be the reason. Where
// the sysctl also forbids io_uring, the sysctl is named first when the filter returns the
// same errno.
func underFilter(t *testing.T, s situation, reason string) childReport {
	t.Helper()
	policy := features.PolicySeccomp
	if without := report(t, situation{UID: s.UID}); s.Errno == syscall.EPERM && without.Policy == string(features.PolicySysctl) {
		policy, reason = features.PolicySysctl, "a seccomp filter forbids it, too"
	}
	r := report(t, s)
	forbidden(t, r, policy, reason)
	return r
}

// RINGSIDE_BACKEND=plain overrides everything else. The facts that the kernel reports by a
// query stay visible.
func TestSwitchedOff(t *testing.T) {
	ringtest.NeedRing(t)
	r := report(t, situation{}, features.EnvBackend+"=plain")
	forbidden(t, r, features.PolicyEnvironment, "RINGSIDE_BACKEND is plain")
	query := features.HaveRegister(uring.OpRegisterQuery) == nil
	for kind, table := range tables(r.Report) {
		for _, e := range table {
			if known := e.Known != nil && *e.Known; known != (query && kind != "behaviour") {
				t.Errorf("%s %s: known %v, query %v", kind, e.Name, known, query)
			}
		}
	}
}

// 64 KiB of locked memory are the default limit of many systems for a user. Whether rings
// count depends on the kernel. Each trial fits into the limit by itself. The kernel frees
// the memory of closed rings with a delay, which must not make a feature appear forbidden.
// Promise: cli/probe-names-obstacle
func TestMemlock64K(t *testing.T) {
	ringtest.NeedRing(t)
	ringtest.NeedUser(t, lonely())
	want := probe.Collect()
	r := report(t, situation{UID: lonely(), Memlock: 64 << 10})
	if !r.Usable {
		t.Fatalf("not usable: %s", r.Reason)
	}
	if r.Memlock.Soft == nil || *r.Memlock.Soft != 64<<10 || r.Memlock.Exempt {
		t.Errorf("memlock %+v", r.Memlock)
	}
	if len(r.Notes) != 1 || r.Notes[0].About != "memlock" || !strings.Contains(r.Notes[0].Text, "64 KiB") || r.Notes[0].Remedy == "" {
		t.Errorf("notes %+v", r.Notes)
	}
	wanted := tables(want)
	for kind, table := range tables(r.Report) {
		for i, e := range table {
			if e.Answer != wanted[kind][i].Answer {
				t.Errorf("%s %s: %s (%s), with more memory %s", kind, e.Name, e.Answer, e.Reason, wanted[kind][i].Answer)
			}
		}
	}
	if !want.Memlock.Exempt {
		return // root of a container
	}
	root := report(t, situation{Memlock: 64 << 10})
	if len(root.Notes) != 0 || !root.Memlock.Exempt {
		t.Errorf("root is exempt from the limit, but got %+v, notes %+v", root.Memlock, root.Notes)
	}
}

// lonely returns a user without other processes: locked memory is counted per user.
func lonely() int { return 1<<20 + os.Getpid() }

// Root of a user namespace has the capability in that namespace, which does not lift the
// limit.
func TestMemlockInNamespace(t *testing.T) {
	ringtest.NeedRing(t)
	needNamespaces(t)
	r := report(t, situation{Namespace: true, Memlock: 4 << 10})
	if r.Memlock.Exempt {
		t.Error("exempt")
	}
	switch r.Answer {
	case probe.Yes:
		if len(r.Notes) != 1 || r.Notes[0].About != "memlock" {
			t.Errorf("notes %+v", r.Notes)
		}
	default:
		forbidden(t, r, features.PolicyMemlock, "4 KiB")
	}
}

// needNamespaces skips the test where the system does not permit user namespaces.
func needNamespaces(t *testing.T) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.SysProcAttr = namespace()
	if err := cmd.Run(); cmd.Process == nil {
		t.Skipf("needs user namespaces: %v", err)
	}
}

// namespace is a user namespace in which the process is root.
func namespace() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
}

// One page is too little memory for a ring where rings count.
func TestMemlockTooSmall(t *testing.T) {
	ringtest.NeedRing(t)
	ringtest.NeedUser(t, lonely())
	r := report(t, situation{UID: lonely(), Memlock: 4 << 10})
	switch r.Answer {
	case probe.Yes:
		if len(r.Notes) != 1 || !strings.Contains(r.Notes[0].Text, "rings do not count here") {
			t.Errorf("notes %+v", r.Notes)
		}
	default:
		forbidden(t, r, features.PolicyMemlock, "4 KiB")
	}
}

// Without free descriptors the result is inconclusive, and nothing is cached.
func TestShortOfDescriptors(t *testing.T) {
	ringtest.NeedRing(t)
	r := report(t, situation{Files: 3})
	if r.Answer != probe.Inconclusive || r.Usable {
		t.Errorf("got %s: %s", r.Answer, r.Reason)
	}
	if r.Again != "<nil>" || r.Error != "" {
		t.Errorf("with descriptors: %s %s", r.Again, r.Error)
	}
}

// The sysctl applies to the whole machine, so this test runs only on the machine of a
// kernel lane.
// Promise: cli/probe-names-obstacle
func TestSysctl(t *testing.T) {
	if os.Getenv(ringtest.LaneEnv) == "" {
		t.Skip("needs a kernel lane, where changing a sysctl affects no other process")
	}
	ringtest.NeedKernel(t, "kernel.io_uring_disabled", "6.6")
	const nobody = 65534
	ringtest.NeedUser(t, nobody)
	set := func(name, value string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join("/proc/sys/kernel", name), []byte(value), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { set("io_uring_disabled", "0"); set("io_uring_group", "-1") })

	set("io_uring_disabled", "2")
	forbidden(t, report(t, situation{}), features.PolicySysctl, "kernel.io_uring_disabled is 2")
	both := report(t, situation{Errno: syscall.EPERM})
	forbidden(t, both, features.PolicySysctl, "a seccomp filter forbids it, too")
	forbidden(t, report(t, situation{Errno: syscall.ENOSYS}), features.PolicySeccomp, "ENOSYS")

	set("io_uring_disabled", "1")
	forbidden(t, report(t, situation{UID: nobody}), features.PolicySysctl, "kernel.io_uring_disabled is 1")
	if r := report(t, situation{}); !r.Usable {
		t.Errorf("root: %s", r.Reason)
	}
	forbidden(t, report(t, situation{Errno: syscall.EPERM}), features.PolicySeccomp, "seccomp")
	forbidden(t, report(t, situation{Namespace: true}), features.PolicySysctl, "kernel.io_uring_disabled is 1")
	set("io_uring_group", "65534")
	if r := report(t, situation{UID: nobody}); !r.Usable {
		t.Errorf("member of the group: %s", r.Reason)
	}
	forbidden(t, report(t, situation{UID: nobody, Errno: syscall.EPERM}), features.PolicySeccomp, "seccomp")
}

// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// envRole turns the test binary into the program under test or, with the argument
// "observe", into the command that it starts.
const envRole = "RINGSIDE_TEST_FORBID"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(envRole) == "":
		os.Exit(m.Run())
	case len(os.Args) == 2 && os.Args[1] == "observe":
		observe()
	default:
		main()
	}
}

// observation describes the restrictions that the command finds.
type observation struct {
	Setup   syscall.Errno
	Memlock uint64
	Nofile  uint64
	UID     int
	Network bool // the address can be reached
}

func observe() {
	var o observation
	_, _, o.Setup = unix.Syscall(unix.SYS_IO_URING_SETUP, 0, 0, 0)
	o.Memlock = getLimit(unix.RLIMIT_MEMLOCK).Cur
	o.Nofile = getLimit(unix.RLIMIT_NOFILE).Max
	o.UID = os.Getuid()
	if l, err := net.Listen("tcp4", "127.0.0.1:0"); err == nil {
		c, err := net.Dial("tcp4", l.Addr().String())
		o.Network = err == nil
		if err == nil {
			c.Close()
		}
		l.Close()
	}
	json.NewEncoder(os.Stdout).Encode(o)
}

func getLimit(resource int) (r syscall.Rlimit) {
	if err := syscall.Getrlimit(resource, &r); err != nil {
		panic(err)
	}
	return r
}

// forbidden runs "seccomp flags... -- self observe".
func forbidden(t *testing.T, self string, flags ...string) observation {
	t.Helper()
	return observed(t, exec.Command(os.Args[0], append(flags, "--", self, "observe")...), flags)
}

func observed(t *testing.T, cmd *exec.Cmd, flags []string) observation {
	t.Helper()
	cmd.Env = append(os.Environ(), envRole+"=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", flags, err, &stderr)
	}
	var o observation
	if err := json.Unmarshal(out, &o); err != nil {
		t.Fatalf("%v: %v in %q", flags, err, out)
	}
	return o
}

func TestErrno(t *testing.T) {
	for name, errno := range map[string]syscall.Errno{
		"EPERM": syscall.EPERM, "ENOSYS": syscall.ENOSYS, "EACCES": syscall.EACCES, "EXDEV": syscall.EXDEV,
	} {
		if got := forbidden(t, os.Args[0], "-errno", name); got.Setup != errno {
			t.Errorf("-errno %s: io_uring_setup returned %v", name, got.Setup)
		}
	}
}

func TestLimits(t *testing.T) {
	got := forbidden(t, os.Args[0], "-errno", "none", "-memlock", "65536", "-nofile", "123")
	if got.Memlock != 65536 || got.Nofile != 123 {
		t.Errorf("limits in the command: %+v", got)
	}
}

// TestLoopback brings the loopback interface up in a new network namespace, where it is
// down.
func TestLoopback(t *testing.T) {
	for _, flags := range [][]string{{"-errno", "none"}, {"-errno", "none", "-loopback"}} {
		cmd := exec.Command(os.Args[0], append(flags, "--", os.Args[0], "observe")...)
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
		probe := exec.Command("/proc/self/exe", "-test.run=^$")
		probe.SysProcAttr = cmd.SysProcAttr
		if err := probe.Run(); probe.Process == nil {
			t.Skipf("needs user and network namespaces: %v", err)
		}
		if got := observed(t, cmd, flags); got.Network != (len(flags) == 3) {
			t.Errorf("%q: in the command: %+v", flags, got)
		}
	}
}

func TestUID(t *testing.T) {
	const nobody = 65534
	ringtest.NeedUser(t, nobody)
	got := forbidden(t, publicCopy(t), "-errno", "EXDEV", "-uid", strconv.Itoa(nobody))
	if got.UID != nobody || got.Setup != syscall.EXDEV {
		t.Errorf("in the command: %+v", got)
	}
}

// publicCopy copies the test binary to a place where every user can execute it; the
// directory of the go command is closed to other users.
func publicCopy(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "seccomp-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for d := dir; d != "/"; d = filepath.Dir(d) {
		if info, err := os.Stat(d); err != nil || info.Mode().Perm()&1 == 0 {
			t.Skipf("needs a temporary directory open to every user; %s is not (%v)", d, err)
		}
	}
	data, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "self")
	if err := os.WriteFile(path, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestNoSuchCommand(t *testing.T) {
	cmd := exec.Command(os.Args[0], filepath.Join(t.TempDir(), "nothing"))
	cmd.Env = append(os.Environ(), envRole+"=1")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 127 {
		t.Errorf("%v: %s", err, out)
	}
}

func TestParseOptions(t *testing.T) {
	opt, err := parseOptions([]string{"-errno", "ENOSYS", "-nofile", "9", "--", "go", "-v"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if opt.errno != syscall.ENOSYS || opt.nofile != 9 || opt.memlock >= 0 || opt.uid >= 0 || len(opt.command) != 2 {
		t.Errorf("got %+v", opt)
	}
	for _, args := range [][]string{{}, {"-errno", "EPERM"}, {"-errno", "EWHAT", "true"}, {"-errno", "", "true"}, {"-memlock", "x", "true"}} {
		if _, err := parseOptions(args, io.Discard); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
	if n := errnoByName("E" + strconv.Itoa(1)); n != 0 {
		t.Errorf("errno %d for an unknown name", n)
	}
}

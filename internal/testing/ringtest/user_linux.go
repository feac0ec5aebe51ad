// SPDX-License-Identifier: MIT

package ringtest

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/probe"
)

// NeedUser skips the test where the process may not become the user and group
// with this number: without the capabilities for it, or in a user namespace
// that has no such user.
func NeedUser(t testing.TB, id int) {
	t.Helper()
	if missing := toBecome(os.ReadFile, id); missing != "" {
		t.Skipf("needs to become user %d: %s", id, missing)
	}
}

// NeedFiles skips the test where the process may not have n descriptors.
func NeedFiles(t testing.TB, n uint64) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Max < n {
		t.Skipf("needs RLIMIT_NOFILE of %d, the hard limit is %d", n, limit.Max)
	}
}

// WithoutPrivileges makes the process and the directories belong to the user id, unless
// the limit on locked memory already applies to the process: to that of a user, or of
// root in another user namespace. It reports whether it did. If not, other processes of
// the user may use up the limit.
func WithoutPrivileges(t testing.TB, id int, dirs ...string) bool {
	t.Helper()
	env := probe.ReadEnvironment(os.DirFS("/"), os.Getenv)
	if !env.LocksFreely() {
		return false
	}
	NeedUser(t, id)
	for _, dir := range dirs {
		if err := os.Chown(dir, id, id); err != nil {
			t.Fatal(err)
		}
	}
	if err := Become(id); err != nil {
		t.Fatal(err)
	}
	return true
}

// Become changes the user and the group of the process to id, without other groups.
func Become(id int) error {
	if err := syscall.Setgroups(nil); err != nil {
		return os.NewSyscallError("setgroups", err)
	}
	if err := syscall.Setresgid(id, id, id); err != nil {
		return os.NewSyscallError("setresgid", err)
	}
	return os.NewSyscallError("setresuid", syscall.Setresuid(id, id, id))
}

// toBecome returns what Become lacks. It decides by the kernel's description of the
// process, so that an unexpected failure of the call is not hidden.
func toBecome(read func(string) ([]byte, error), id int) string {
	const capSetGID, capSetUID = 6, 7
	status, err := read("/proc/self/status")
	if err != nil {
		return err.Error()
	}
	var caps uint64
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "CapEff:"); ok {
			_, _ = fmt.Sscanf(rest, "%x", &caps)
		}
	}
	if caps>>capSetGID&1 == 0 || caps>>capSetUID&1 == 0 {
		return "without CAP_SETUID and CAP_SETGID"
	}
	for _, name := range []string{"/proc/self/uid_map", "/proc/self/gid_map"} {
		if table, err := read(name); err != nil || !holds(table, id) {
			return fmt.Sprintf("it is not in %s", name)
		}
	}
	if groups, err := read("/proc/self/setgroups"); err == nil && strings.TrimSpace(string(groups)) == "deny" {
		return "/proc/self/setgroups denies"
	}
	return ""
}

// holds reports whether a line "first, first outside, count" holds id.
func holds(table []byte, id int) bool {
	for s := bufio.NewScanner(bytes.NewReader(table)); s.Scan(); {
		var first, outside, count int64
		if n, _ := fmt.Sscan(s.Text(), &first, &outside, &count); n == 3 && int64(id) >= first && int64(id) < first+count {
			return true
		}
	}
	return false
}

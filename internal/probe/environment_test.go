// SPDX-License-Identifier: MIT

package probe_test

import (
	"os"
	"reflect"
	"runtime"
	"testing"
	"testing/fstest"

	"github.com/ringside-io/ringside/internal/probe"
)

// root returns a file system with the given content.
func root(files map[string]string) fstest.MapFS {
	m := fstest.MapFS{}
	for name, text := range files {
		m[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return m
}

func vars(pairs ...string) func(string) string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(key string) string { return m[key] }
}

func TestReadEnvironment(t *testing.T) {
	got := probe.ReadEnvironment(root(map[string]string{
		"proc/sys/kernel/osrelease":         "6.12.1-arch\n",
		"proc/sys/kernel/io_uring_disabled": "1\n",
		"proc/sys/kernel/io_uring_group":    "-1\n",
		"proc/self/status": "Name:\tx\nUid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1001\t1000\t1000\nGroups:\t10 998 \n" +
			"CapEff:\t0000000000004000\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\nCpus_allowed_list:\t2-3,7\n",
		"proc/self/limits": "Limit                     Soft Limit           Hard Limit           Units     \n" +
			"Max processes             15000                15000                processes \n" +
			"Max locked memory         65536                unlimited            bytes     \n",
		"proc/self/uid_map":                      "         0          0 4294967295\n",
		"proc/self/attr/current":                 "docker-default (enforce)\n",
		"sys/module/apparmor/parameters/enabled": "Y\n",
		"run/.containerenv":                      "",
	}), vars())
	want := probe.Environment{
		Release: "6.12.1-arch", Disabled: new(1), Group: new(-1), Seccomp: new(2), Filters: new(3),
		MemlockSoft: new(int64(65536)), MemlockHard: new(int64(probe.Unlimited)),
		Capabilities: new(uint64(1 << probe.CapIPCLock)), InitialUser: true, Groups: []int{1001, 10, 998},
		LSMs: []string{"apparmor"}, Context: "docker-default (enforce)", Container: "podman", CPU: 2,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if !got.Has(probe.CapIPCLock) || got.Has(probe.CapSysAdmin) {
		t.Errorf("capabilities %b", *got.Capabilities)
	}
}

// In some sandboxes no file can be read: then the result must be empty.
func TestReadEnvironmentNothing(t *testing.T) {
	got := probe.ReadEnvironment(root(nil), vars())
	if want := (probe.Environment{}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}

func TestReadEnvironmentGarbage(t *testing.T) {
	got := probe.ReadEnvironment(root(map[string]string{
		"proc/sys/kernel/io_uring_disabled": "yes",
		"proc/self/status":                  "Seccomp\nSeccomp:\nCapEff:\tzz\nGid:\nGroups:\ta b\n:\n",
		"proc/self/limits":                  "Max locked memory\nMax locked memory many more\n",
	}), vars())
	if want := (probe.Environment{}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}

func TestContainer(t *testing.T) {
	tests := []struct {
		want  string
		files map[string]string
		vars  []string
	}{
		{"", nil, nil},
		{"docker", map[string]string{".dockerenv": ""}, nil},
		{"docker", map[string]string{"proc/self/cgroup": "0::/system.slice/docker-abc.scope\n"}, nil},
		{"podman", map[string]string{"run/.containerenv": "", ".dockerenv": ""}, nil},
		{"kubernetes", map[string]string{".dockerenv": ""}, []string{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}},
		{"kubernetes", map[string]string{"proc/self/cgroup": "0::/kubepods.slice/x\n"}, nil},
		{"lxc", nil, []string{"container", "lxc"}},
		{"systemd", map[string]string{"proc/self/cgroup": "0::/system.slice/nginx.service\n"}, []string{"INVOCATION_ID", "1"}},
		{"", map[string]string{"proc/self/cgroup": "0::/user.slice/user-1.slice/session-2.scope\n"}, []string{"INVOCATION_ID", "1"}},
		{"gvisor", map[string]string{"proc/version": "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n", ".dockerenv": ""}, nil},
	}
	for _, test := range tests {
		if got := probe.ReadEnvironment(root(test.files), vars(test.vars...)).Container; got != test.want {
			t.Errorf("%v %v: got %q, want %q", test.files, test.vars, got, test.want)
		}
	}
}

func TestSecurityModules(t *testing.T) {
	got := probe.ReadEnvironment(root(map[string]string{
		"sys/kernel/security/lsm": "lockdown,capability,selinux",
		"sys/fs/selinux/enforce":  "1",
		"proc/self/attr/current":  "system_u:system_r:container_t:s0\x00",
	}), vars())
	if want := []string{"lockdown", "capability", "selinux"}; !reflect.DeepEqual(got.LSMs, want) {
		t.Errorf("got %q, want %q", got.LSMs, want)
	}
	if want := "system_u:system_r:container_t:s0"; got.Context != want {
		t.Errorf("context %q, want %q", got.Context, want)
	}
}

// The value 1 of the sysctl exempts administrators and one group, both in the initial user
// namespace.
func TestExempt(t *testing.T) {
	admin := new(uint64(1 << probe.CapSysAdmin))
	tests := []struct {
		name string
		env  probe.Environment
		want bool
	}{
		{"nobody", probe.Environment{InitialUser: true}, false},
		{"administrator", probe.Environment{InitialUser: true, Capabilities: admin}, true},
		{"administrator of a container", probe.Environment{Capabilities: admin}, false},
		{"no group set", probe.Environment{InitialUser: true, Group: new(-1), Groups: []int{-1, 5}}, false},
		{"member", probe.Environment{InitialUser: true, Group: new(5), Groups: []int{4, 5}}, true},
		{"no member", probe.Environment{InitialUser: true, Group: new(5), Groups: []int{4}}, false},
		{"member in a container", probe.Environment{Group: new(5), Groups: []int{5}}, false},
	}
	for _, test := range tests {
		if got := test.env.Exempt(); got != test.want {
			t.Errorf("%s: got %v", test.name, got)
		}
	}
}

// CAP_IPC_LOCK lifts the limit on locked memory only in the initial user namespace.
func TestLocksFreely(t *testing.T) {
	locker := new(uint64(1 << probe.CapIPCLock))
	tests := []struct {
		name string
		env  probe.Environment
		want bool
	}{
		{"nobody", probe.Environment{InitialUser: true, Capabilities: new(uint64(0))}, false},
		{"root", probe.Environment{InitialUser: true, Capabilities: locker}, true},
		{"root of a container", probe.Environment{Capabilities: locker}, false},
		{"unknown", probe.Environment{InitialUser: true}, false},
	}
	for _, test := range tests {
		if got := test.env.LocksFreely(); got != test.want {
			t.Errorf("%s: got %v", test.name, got)
		}
	}
}

// Promise: cli/probe-names-obstacle
func FuzzReadEnvironment(f *testing.F) {
	f.Add("Seccomp:\t2\nCpus_allowed_list:\t0-1", "Max locked memory  1 unlimited bytes", "0")
	f.Fuzz(func(t *testing.T, status, limits, sysctl string) {
		e := probe.ReadEnvironment(root(map[string]string{
			"proc/self/status": status, "proc/self/limits": limits, "proc/sys/kernel/io_uring_disabled": sysctl,
		}), vars())
		e.Exempt()
	})
}

// The files of the running system must be parsed.
func TestReadEnvironmentHere(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux")
	}
	e := probe.ReadEnvironment(os.DirFS("/"), os.Getenv)
	if e.Release != probe.Release() {
		t.Errorf("release %q, uname has %q", e.Release, probe.Release())
	}
	if e.Seccomp == nil || e.Capabilities == nil || e.MemlockSoft == nil || e.MemlockHard == nil || len(e.Groups) == 0 {
		t.Errorf("a field is missing: %+v", e)
	}
	if gid := os.Getegid(); len(e.Groups) > 0 && e.Groups[0] != gid {
		t.Errorf("effective group %d, want %d", e.Groups[0], gid)
	}
}

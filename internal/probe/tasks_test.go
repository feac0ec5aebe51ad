// SPDX-License-Identifier: MIT

package probe_test

import (
	"testing"

	"github.com/ringside-io/ringside/internal/probe"
)

func TestTaskLimit(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"nothing": {nil, ""},
		"v2": {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/pids.max": "max\n",
			"sys/fs/cgroup/a/b/pids.current": "7\n", "sys/fs/cgroup/a/pids.max": "7\n", "sys/fs/cgroup/a/pids.current": "7\n"},
			"/sys/fs/cgroup/a/pids.max"},
		"v1, room": {map[string]string{"proc/self/cgroup": "8:pids:/x\n0::/\n", "sys/fs/cgroup/pids/x/pids.max": "8\n",
			"sys/fs/cgroup/pids/x/pids.current": "7\n"}, ""},
		"user": {map[string]string{"proc/self/limits": "Max processes 3 3 processes\n", "proc/self/status": "Uid:\t5 5 5 5\n",
			"proc/1/status": "Uid:\t5 5 5 5\nThreads:\t2\n", "proc/2/status": "Uid:\t5 5 5 5\nThreads:\t1\n"}, "RLIMIT_NPROC (ulimit -u)"},
		"user, room": {map[string]string{"proc/self/limits": "Max processes 3 3 processes\n", "proc/self/status": "Uid:\t5 5 5 5\n",
			"proc/1/status": "Uid:\t5 5 5 5\nThreads:\t2\n", "proc/2/status": "Uid:\t6 6 6 6\nThreads:\t9\n"}, ""},
		"root": {map[string]string{"proc/self/limits": "Max processes 1 3 processes\n", "proc/self/status": "Uid:\t0 0 0 0\n",
			"proc/1/status": "Uid:\t0 0 0 0\nThreads:\t2\n"}, ""},
	} {
		if got := probe.TaskLimit(root(c.files)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

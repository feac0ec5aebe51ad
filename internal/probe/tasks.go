// SPDX-License-Identifier: MIT

package probe

import (
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// TaskLimit returns the limit that keeps the process from having one more thread: the name
// of a file pids.max, or RLIMIT_NPROC. It returns "" if none is found. A container may not
// see the limits of its host. TaskLimit reads files and may take milliseconds.
func TaskLimit(root fs.FS) string {
	r := reader{root}
	for line := range strings.Lines(r.text("proc/self/cgroup")) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(f) < 3:
		case f[1] == "pids":
			if file := r.fullCgroup("sys/fs/cgroup/pids", f[2]); file != "" {
				return file
			}
		case f[0] == "0":
			if file := r.fullCgroup("sys/fs/cgroup", f[2]); file != "" {
				return file
			}
		}
	}
	if r.fullUser() {
		return "RLIMIT_NPROC (ulimit -u)"
	}
	return ""
}

// fullCgroup returns the pids.max that is reached, of a cgroup or one above it.
func (r reader) fullCgroup(mount, cgroup string) string {
	for dir := path.Join("/", cgroup); ; dir = path.Dir(dir) {
		file := path.Join(mount, dir, "pids.max")
		most, now := number(r.line(file)), number(r.line(path.Join(mount, dir, "pids.current")))
		if most != nil && now != nil && *now >= *most {
			return "/" + file
		}
		if dir == "/" {
			return ""
		}
	}
}

// fullUser reports whether the user of the process has as many tasks as RLIMIT_NPROC
// permits. It does not bind root.
func (r reader) fullUser() bool {
	most := int64(-1)
	for line := range strings.Lines(r.text("proc/self/limits")) {
		if rest, ok := strings.CutPrefix(line, "Max processes"); ok {
			if f := strings.Fields(rest); len(f) > 0 && f[0] != "unlimited" {
				most, _ = strconv.ParseInt(f[0], 10, 64)
			}
		}
	}
	user := r.user("proc/self/status")
	if most < 0 || user == "0" || user == "" {
		return false
	}
	processes, err := fs.ReadDir(r.root, "proc")
	if err != nil {
		return false
	}
	tasks := int64(0)
	for _, p := range processes {
		if name := p.Name(); name[0] >= '0' && name[0] <= '9' && r.user("proc/"+name+"/status") == user {
			if n := number(r.fields("proc/" + name + "/status")["Threads"]); n != nil {
				tasks += int64(*n)
			}
		}
	}
	return tasks >= most
}

// user returns the real user of a process.
func (r reader) user(status string) string {
	if ids := strings.Fields(r.fields(status)["Uid"]); len(ids) > 0 {
		return ids[0]
	}
	return ""
}

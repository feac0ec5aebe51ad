// SPDX-License-Identifier: MIT

package hostinfo

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// storage finds the mount that holds target in the kernel's list.
func storage(target string) storageInfo {
	path, err := filepath.Abs(target)
	if err != nil {
		return storageInfo{}
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	info, err := os.Stat(path)
	if err != nil {
		return storageInfo{}
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode()&os.ModeDevice != 0 {
		return storageInfo{device: blockDevice(deviceNumber(uint64(st.Rdev)), path), filesystem: "none (block device)"}
	}
	list, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return storageInfo{}
	}
	m, ok := findMount(string(list), path)
	if !ok {
		return storageInfo{}
	}
	return storageInfo{device: blockDevice(m.number, m.source), filesystem: m.fstype, options: m.options}
}

// mount is one line of mountinfo.
type mount struct{ number, point, options, fstype, source string }

// findMount returns the mount with the longest mount point above path; of several on one point
// the last covers the others.
func findMount(mountinfo, path string) (mount, bool) {
	var best mount
	found := false
	for line := range strings.Lines(mountinfo) {
		m, ok := parseMount(line)
		if ok && within(path, m.point) && (!found || len(m.point) >= len(best.point)) {
			best, found = m, true
		}
	}
	return best, found
}

func within(path, point string) bool {
	return point == "/" || path == point || strings.HasPrefix(path, point+"/")
}

// parseMount splits "id parent maj:min root point options tags... - fstype source superoptions".
func parseMount(line string) (mount, bool) {
	left, right, ok := strings.Cut(line, " - ")
	before, after := strings.Fields(left), strings.Fields(right)
	if !ok || len(before) < 6 || len(after) < 2 {
		return mount{}, false
	}
	m := mount{number: before[2], point: unescape(before[4]), options: before[5], fstype: after[0], source: unescape(after[1])}
	if len(after) > 2 {
		m.options = mergeOptions(m.options, after[2])
	}
	return m, true
}

// mergeOptions appends those options of the file system that the mount does not repeat.
func mergeOptions(mount, super string) string {
	out := strings.Split(mount, ",")
	seen := map[string]bool{"rw": true, "ro": true}
	for _, o := range out {
		seen[o] = true
	}
	for o := range strings.SplitSeq(super, ",") {
		if !seen[o] {
			out = append(out, o)
		}
	}
	return strings.Join(out, ",")
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

func deviceNumber(dev uint64) string { return fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev)) }

// blockDevice prefers the kernel's name of the device over what was given to mount, which may be
// a label or "/dev/root".
func blockDevice(number, source string) string {
	if link, err := os.Readlink("/sys/dev/block/" + number); err == nil {
		return filepath.Base(link)
	}
	return strings.TrimPrefix(source, "/dev/")
}

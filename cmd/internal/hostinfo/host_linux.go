// SPDX-License-Identifier: MIT

package hostinfo

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func kernelRelease() string {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// cpuModel returns the model of the first processor. Its key depends on the architecture.
func cpuModel() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for _, want := range []string{"model name", "Model", "cpu model", "uarch", "cpu", "machine"} {
		if v := procValue(string(b), want); v != "" {
			return strings.Join(strings.Fields(v), " ")
		}
	}
	return ""
}

// procValue returns the value of the first line "key : value".
func procValue(text, key string) string {
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func memory() memoryInfo {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return memoryInfo{}
	}
	return memoryInfo{total: kib(string(b), "MemTotal"), available: kib(string(b), "MemAvailable")}
}

func kib(text, key string) int64 {
	n, err := strconv.ParseInt(strings.TrimSuffix(procValue(text, key), " kB"), 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}

func spoilers() []string {
	var out []string
	if busy, ok := busyShare(busyWindow); ok && busy > maxBusy {
		out = append(out, busyWords(busy))
	}
	for _, check := range []func(root string) string{governor, cpuLimit, memoryLimit} {
		if text := check("/"); text != "" {
			out = append(out, text)
		}
	}
	return out
}

// busyWords describes how reliable results are while programs use this share of the processors.
func busyWords(busy float64) string {
	text := fmt.Sprintf("the machine is busy: other programs use %.0f %% of its processors; ", 100*busy)
	if busy > tooBusy {
		return text + "stop them and measure again, because a verdict of this run may be about them"
	}
	return text + "stop them, or take differences below 10 % for noise"
}

// busyShare returns the share of all processors that processes use while this process waits.
func busyShare(window time.Duration) (float64, bool) {
	since := shares()
	time.Sleep(window)
	idle, _, ok := since()
	return 1 - idle, ok
}

func stolen() func() float64 {
	since := shares()
	return func() float64 {
		_, stolen, _ := since()
		return stolen
	}
}

// shares begins to observe the processors. The function that it returns returns the shares of their
// time since then that were idle and stolen.
func shares() func() (idle, stolen float64, ok bool) {
	before, ok1 := jiffies("/proc/stat")
	return func() (idle, stolen float64, ok bool) {
		after, ok2 := jiffies("/proc/stat")
		total := float64(after.total - before.total)
		if !ok1 || !ok2 || total <= 0 {
			return 0, 0, false
		}
		return float64(after.idle-before.idle) / total, float64(after.stolen-before.stolen) / total, true
	}
}

type cpuTime struct{ idle, stolen, total int64 }

// jiffies parses the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq,
// steal; see proc_stat(5). Waiting for a device counts as idle time.
func jiffies(path string) (t cpuTime, ok bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return t, false
	}
	line, _, _ := strings.Cut(string(b), "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return t, false
	}
	for i, f := range fields[1:9] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return t, false
		}
		t.total += n
		switch i {
		case 3, 4:
			t.idle += n
		case 7:
			t.stolen = n
		}
	}
	return t, true
}

// governor returns the name of a frequency governor that may change the clock during a measurement.
func governor(root string) string {
	files, _ := filepath.Glob(filepath.Join(root, "sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor"))
	var names []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		if name := strings.TrimSpace(string(b)); err == nil && name != "performance" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("the processor's frequency governor is %s: the clock follows the load; for steady results use 'cpupower frequency-set -g performance'", strings.Join(names, ", "))
}

// cgroupDirs returns the directories of this process's control group and its parents, see
// cgroups(7).
func cgroupDirs(root string) []string {
	b, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		var dirs []string
		for {
			dirs = append(dirs, filepath.Join(root, "sys/fs/cgroup", group))
			if group == "/" || group == "." {
				return dirs
			}
			group = filepath.Dir(group)
		}
	}
	return nil
}

// cpuLimit describes a quota that stops the process once it has used its share of a period.
func cpuLimit(root string) string {
	for _, dir := range cgroupDirs(root) {
		b, err := os.ReadFile(filepath.Join(dir, "cpu.max"))
		if err != nil {
			continue
		}
		var quota, period float64
		if n, _ := fmt.Sscan(string(b), &quota, &period); n != 2 || period == 0 {
			continue // "max": no limit
		}
		if cpus := quota / period; cpus < float64(runtime.NumCPU()) {
			return fmt.Sprintf("a limit of the container or service gives this process %.2g of %d processors (cpu.max): it is stopped in each period, which shows in p99; raise --cpus or CPUQuota for the measurement", cpus, runtime.NumCPU())
		}
	}
	return ""
}

// enoughMemory suffices for the file, the databases and the page cache of the default run.
const enoughMemory = 2 << 30

// memoryLimit describes a limit that makes the page cache small.
func memoryLimit(root string) string {
	for _, dir := range cgroupDirs(root) {
		b, err := os.ReadFile(filepath.Join(dir, "memory.max"))
		if err != nil {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && n < enoughMemory {
			return fmt.Sprintf("a limit of the container or service leaves this process %d MiB of memory (memory.max): reads said to be hot may come from the device", n>>20)
		}
	}
	return ""
}

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

// findMount returns the mount with the longest mount point above path. If several have the same
// mount point, the last one hides the others.
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

// mergeOptions appends the options of the file system that the mount does not repeat.
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

// unescape replaces the octal escapes of mountinfo.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

func deviceNumber(dev uint64) string { return fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev)) }

// blockDevice returns the kernel's name of the device. The name given to mount may be a label or
// "/dev/root"; it is only used if there is no other.
func blockDevice(number, source string) string {
	if link, err := os.Readlink("/sys/dev/block/" + number); err == nil {
		return filepath.Base(link)
	}
	return strings.TrimPrefix(source, "/dev/")
}

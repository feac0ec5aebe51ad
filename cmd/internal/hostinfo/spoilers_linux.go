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
	"time"
)

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

// busyWords says what to think of numbers beside programs that use this share of the processors.
func busyWords(busy float64) string {
	text := fmt.Sprintf("the machine is busy: other programs use %.0f %% of its processors; ", 100*busy)
	if busy > tooBusy {
		return text + "stop them and measure again, because a verdict of this run may be about them"
	}
	return text + "stop them, or take differences below 10 % for noise"
}

// busyShare returns the share of all processors that is in use, by any process, while this process waits.
func busyShare(window time.Duration) (float64, bool) {
	before, ok1 := jiffies("/proc/stat")
	time.Sleep(window)
	after, ok2 := jiffies("/proc/stat")
	total := after.total - before.total
	if !ok1 || !ok2 || total <= 0 {
		return 0, false
	}
	return 1 - float64(after.idle-before.idle)/float64(total), true
}

type cpuTime struct{ idle, total int64 }

// jiffies reads the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal,
// see proc_stat(5). Waiting for a device is idle time.
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
		if i == 3 || i == 4 {
			t.idle += n
		}
	}
	return t, true
}

// governor names a frequency governor that changes the clock while something is measured.
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

// cgroupDirs are the directories of this process's control group and those above it, see cgroups(7).
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

// cpuLimit tells of a quota that stops the process when it has used its share of a period.
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

// enoughMemory is what the default run needs for its file, its databases and the page cache.
const enoughMemory = 2 << 30

// memoryLimit tells of a limit that keeps the page cache small.
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

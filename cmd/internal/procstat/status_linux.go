// SPDX-License-Identifier: MIT

package procstat

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Resident returns the bytes of memory that a process has in RAM.
func Resident(pid int) (int64, error) {
	kib, err := statusField(fmt.Sprintf("/proc/%d/status", pid), "VmRSS")
	return kib << 10, err
}

// Sleeps returns how often the threads that a process has now gave up the processor to wait. The
// difference of two calls is how often it was woken.
func Sleeps(pid int) (int64, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("threads of process %d: %w", pid, os.ErrNotExist)
	}
	var sum int64
	for _, file := range files {
		n, err := statusField(file, "voluntary_ctxt_switches")
		if err != nil && !os.IsNotExist(err) {
			return 0, err
		}
		sum += n // 0 for a thread that has just ended
	}
	return sum, nil
}

// statusField returns the number after a name in a file of lines "name: number unit".
func statusField(file, name string) (int64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		}
	}
	return 0, fmt.Errorf("%s: no %s", file, name)
}

// Ports returns how many ports the system gives to connections of one address to one other; 0 means
// that it is unknown.
func Ports() int {
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return 0
	}
	var low, high int
	if n, err := fmt.Sscan(string(b), &low, &high); n != 2 || err != nil {
		return 0
	}
	return max(high-low+1, 0)
}

// SPDX-License-Identifier: MIT

package hostinfo

import (
	"os"
	"strconv"
	"strings"
)

func kernelRelease() string {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// cpuModel reads the first description of a processor; which key holds it depends on the
// architecture.
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

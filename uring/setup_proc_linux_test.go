// SPDX-License-Identifier: MIT

package uring_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/uring"
)

// ctlThreads returns the threads of the process whose names begin with prefix. The kernel's
// threads for rings are called iou-sqp-PID and iou-wrk-PID.
func ctlThreads(t testing.TB, prefix string) []int {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var tids []int
	for _, dir := range tasks {
		comm, err := os.ReadFile(filepath.Join(dir, "comm"))
		if err == nil && strings.HasPrefix(string(comm), prefix) {
			tid, _ := strconv.Atoi(filepath.Base(dir))
			tids = append(tids, tid)
		}
	}
	return tids
}

// ctlCPUs returns the processors that a thread may run on; 0 means the calling thread.
func ctlCPUs(t testing.TB, tid int) []int {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(tid, &set); err != nil {
		t.Fatal(err)
	}
	var cpus []int
	for i := range len(set) * strconv.IntSize {
		if set.IsSet(i) {
			cpus = append(cpus, i)
		}
	}
	return cpus
}

// ctlRingMappings returns the sizes of the process's mappings of rings.
func ctlRingMappings(t testing.TB) (sizes []int) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.Contains(line, "[io_uring]") {
			continue
		}
		from, rest, _ := strings.Cut(line, "-")
		to, _, _ := strings.Cut(rest, " ")
		a, err1 := strconv.ParseUint(from, 16, 64)
		b, err2 := strconv.ParseUint(to, 16, 64)
		if err1 != nil || err2 != nil {
			t.Fatalf("cannot read %q", line)
		}
		sizes = append(sizes, int(b-a))
	}
	return sizes
}

// ctlShown returns how many published entries of a ring the kernel has not consumed.
func ctlShown(t testing.TB, r *uring.Ring) uint32 {
	t.Helper()
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", r.FD()))
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]uint32{}
	for line := range strings.Lines(string(info)) {
		name, value, _ := strings.Cut(line, ":")
		if n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32); err == nil {
			fields[name] = uint32(n)
		}
	}
	head, ok1 := fields["SqHead"]
	tail, ok2 := fields["SqTail"]
	if !ok1 || !ok2 {
		t.Fatalf("no queue in fdinfo: %q", info)
	}
	if n, ok := fields["SQEs"]; ok && n != tail-head {
		t.Errorf("fdinfo lists %d entries between %d and %d", n, head, tail)
	}
	return tail - head
}

// ctlHugePages reports whether the system has free huge pages.
func ctlHugePages(t testing.TB, n int) bool {
	t.Helper()
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(info)) {
		if rest, ok := strings.CutPrefix(line, "HugePages_Free:"); ok {
			free, _ := strconv.Atoi(strings.TrimSpace(rest))
			return free >= n
		}
	}
	return false
}

// ctlLoopback returns the index of the loopback interface.
func ctlLoopback(t testing.TB) int {
	t.Helper()
	i, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	return i.Index
}

// ctlMemory returns how many bytes of memory the process uses.
func ctlMemory(t testing.TB) int {
	t.Helper()
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, resident int
	if _, err := fmt.Sscan(string(statm), &size, &resident); err != nil {
		t.Fatal(err)
	}
	return resident * os.Getpagesize()
}

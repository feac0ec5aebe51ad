// SPDX-License-Identifier: MIT

package procstat

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Resident returns the resident memory of a process in bytes.
func Resident(pid int) (int64, error) {
	kib, err := statusField(fmt.Sprintf("/proc/%d/status", pid), "VmRSS")
	return kib << 10, err
}

// Sleeps returns how often the current threads of a process gave up the processor to wait. The
// difference of two calls is the number of wake-ups.
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

// Ports returns the number of ephemeral ports for connections between two addresses; 0 means
// unknown.
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

// CPU returns the CPU time of a process in nanoseconds, including its kernel threads.
func CPU(pid int) (time.Duration, error) {
	const sched = 2 // CPUCLOCK_SCHED of the process
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|sched), &ts); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// Syscalls counts the system calls of a process with the kernel's tracepoint for system-call entry.
// Kernel threads make no system calls, so the work of an SQPOLL thread is not counted.
type Syscalls struct{ fds []int }

// ErrNotCounted is matched by the error of [CountSyscalls] if the system does not allow this
// process to count. The text names what is missing.
var ErrNotCounted = errors.New("system calls cannot be counted")

// patience is how often CountSyscalls begins again for a process that starts threads meanwhile.
const patience = 1000

// CountSyscalls starts counting for all threads of a process, and for the threads they start. It
// slows down each system call, so it does not belong in a timed window.
func CountSyscalls(pid int) (*Syscalls, error) {
	id, err := tracepoint()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotCounted, err)
	}
	for range patience {
		s, complete, err := countThreads(pid, id)
		if complete || err != nil {
			return s, err
		}
		if err := s.Close(); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: process %d starts threads all the time", ErrNotCounted, pid)
}

// countThreads counts for the threads there are, and reports whether these are all. A thread that
// started after the list was read may be counted through its parent or not at all: then the list
// differs afterwards.
func countThreads(pid int, tracepoint uint64) (_ *Syscalls, complete bool, _ error) {
	before, err := threads(pid)
	if err != nil {
		return nil, false, err
	}
	s := &Syscalls{}
	for _, tid := range before {
		err := s.add(tracepoint, tid)
		if err != nil && !errors.Is(err, unix.ESRCH) { // that thread has ended
			return nil, false, errors.Join(fmt.Errorf("%w: perf_event_open: %w (it takes root, or CAP_PERFMON)", ErrNotCounted, err), s.Close())
		}
	}
	after, err := threads(pid)
	if err != nil {
		return nil, false, errors.Join(err, s.Close())
	}
	return s, slices.Equal(before, after), nil
}

// threads returns the numbers of the threads of a process, in ascending order.
func threads(pid int) ([]int, error) {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	tids := make([]int, len(tasks))
	for i, task := range tasks {
		tids[i], _ = strconv.Atoi(task.Name())
	}
	slices.Sort(tids)
	return tids, err
}

func (s *Syscalls) add(tracepoint uint64, tid int) error {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_TRACEPOINT, Config: tracepoint, Bits: unix.PerfBitInherit}
	attr.Size = uint32(unsafe.Sizeof(attr))
	fd, err := unix.PerfEventOpen(&attr, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err == nil {
		s.fds = append(s.fds, fd)
	}
	return err
}

// Read returns the number of calls since [CountSyscalls].
func (s *Syscalls) Read() (int64, error) {
	var sum int64
	for _, fd := range s.fds {
		var b [8]byte
		if _, err := unix.Read(fd, b[:]); err != nil {
			return 0, fmt.Errorf("read a counter: %w", err)
		}
		sum += int64(binary.NativeEndian.Uint64(b[:]))
	}
	return sum, nil
}

// Close stops counting.
func (s *Syscalls) Close() error {
	var err error
	for _, fd := range s.fds {
		err = errors.Join(err, unix.Close(fd))
	}
	s.fds = nil
	return err
}

// tracepointFile has the tracepoint's number. It is relative to the root of tracefs.
const tracepointFile = "events/raw_syscalls/sys_enter/id"

// tracepoint returns the number of the tracepoint for the entry of system calls.
func tracepoint() (uint64, error) {
	for _, dir := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		if id, err := readID(dir); err == nil {
			return id, nil
		}
	}
	return mountedTracepoint()
}

func readID(dir string) (uint64, error) {
	b, err := os.ReadFile(filepath.Join(dir, tracepointFile))
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
}

// mountedTracepoint reads the number if tracefs is not mounted: a thread mounts it in a mount
// namespace of its own, which ends with the thread.
func mountedTracepoint() (uint64, error) {
	type answer struct {
		id  uint64
		err error
	}
	got := make(chan answer)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		id, err := mountAndRead()
		got <- answer{id, err}
	}()
	a := <-got
	return a.id, a.err
}

func mountAndRead() (uint64, error) {
	const dir = "/sys/kernel/tracing"
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return 0, fmt.Errorf("reading the number of the tracepoint raw_syscalls:sys_enter takes root: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return 0, fmt.Errorf("mount name space: %w", err)
	}
	if err := unix.Mount("none", dir, "tracefs", 0, ""); err != nil {
		return 0, fmt.Errorf("mount tracefs: %w", err)
	}
	return readID(dir)
}

// SPDX-License-Identifier: MIT

package procstat

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// CPU returns the processor time that a process has used, that of its threads in the kernel
// included, to the nanosecond.
func CPU(pid int) (time.Duration, error) {
	const sched = 2 // CPUCLOCK_SCHED of the process
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|sched), &ts); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

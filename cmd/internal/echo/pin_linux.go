// SPDX-License-Identifier: MIT

package echo

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// pinned calls start on a thread whose CPU affinity the started process inherits: one processor for
// a server, the others for other programs.
func pinned(isServer bool, start func() error) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, some unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return fmt.Errorf("sched_getaffinity: %w", err)
	}
	if all.Count() < 2 {
		return errors.New("--pin needs two processors: one for the server, one for the load generator")
	}
	for cpu, found := 0, 0; found < all.Count(); cpu++ {
		if !all.IsSet(cpu) {
			continue
		}
		if found++; isServer == (found == all.Count()) {
			some.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &some); err != nil {
		return fmt.Errorf("sched_setaffinity: %w", err)
	}
	defer func() { err = errors.Join(err, unix.SchedSetaffinity(0, &all)) }()
	return start()
}

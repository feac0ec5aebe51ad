// SPDX-License-Identifier: MIT

//go:build unix

package measure

import "time"

// CPUTime returns user and system time of this process so far, and false where that is not known.
func CPUTime() (time.Duration, bool) {
	u := readUsage()
	return u.cpu, u.known
}

// SPDX-License-Identifier: MIT

//go:build !unix

package measure

import "time"

// CPUTime is not known here.
func CPUTime() (time.Duration, bool) { return 0, false }

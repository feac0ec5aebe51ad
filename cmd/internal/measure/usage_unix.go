// SPDX-License-Identifier: MIT

//go:build unix

package measure

import (
	"syscall"
	"time"
)

// inblockSize is the unit in which the kernel counts block input.
const inblockSize = 512

// usage is what the process had consumed at one moment.
type usage struct {
	cpu    time.Duration
	blocks int64
	known  bool
}

func readUsage() usage {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		return usage{}
	}
	return usage{
		cpu:    time.Duration(ru.Utime.Nano() + ru.Stime.Nano()),
		blocks: int64(ru.Inblock),
		known:  true,
	}
}

// since stores the difference to an earlier reading.
func (u usage) since(before usage, s *Sample) {
	if !u.known || !before.known {
		return
	}
	cpu := u.cpu - before.cpu
	s.CPU = &cpu
	s.DeviceReads = (u.blocks - before.blocks) * inblockSize
}

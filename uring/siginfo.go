// SPDX-License-Identifier: MIT

package uring

import (
	"encoding/binary"
	"strconv"
)

// Siginfo is room for the siginfo_t that [SQE.WaitID] fills; see waitid(2). Its
// methods read the fields that waitid defines.
type Siginfo struct {
	b [128]byte
}

// fields is the offset of the union behind the three leading ints.
const fields = 12 + (strconv.IntSize/32-1)*4

func (s *Siginfo) int(off int) int { return int(int32(binary.NativeEndian.Uint32(s.b[off:]))) }

// Signo returns SIGCHLD when a child was found, otherwise 0.
func (s *Siginfo) Signo() int { return s.int(0) }

// Code says how the child changed: CLD_EXITED (1), CLD_KILLED (2) and so on.
func (s *Siginfo) Code() int { return s.int(8) }

// PID returns the child's process id.
func (s *Siginfo) PID() int { return s.int(fields) }

// UID returns the child's real user id.
func (s *Siginfo) UID() int { return s.int(fields + 4) }

// Status returns the exit code, or the signal that killed the child.
func (s *Siginfo) Status() int { return s.int(fields + 8) }

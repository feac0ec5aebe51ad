// SPDX-License-Identifier: MIT

//go:build !linux

package kernelsim

import "syscall"

// Other systems only have direct rings.

type (
	descriptor    struct{}
	sharedBuffers struct{}
	poller        struct{}
)

func (poller) wake()                         {}
func (poller) close()                        {}
func (*Kernel) polls() bool                  { return false }
func (*Kernel) startDescriptor(*op)          {}
func (*Kernel) transferDescriptor(*op) int32 { return 0 }
func (*op) open() syscall.Errno              { return syscall.ENOSYS }
func (*op) release()                         {}
func (*op) unchanged()                       {}
func (*op) rewatch()                         {}

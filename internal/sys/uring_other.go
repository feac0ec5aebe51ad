// SPDX-License-Identifier: MIT

//go:build !linux

package sys

import (
	"syscall"
	"unsafe"

	"github.com/ringside-io/ringside/internal/abi"
)

// noSys is what a system without io_uring answers.
const noSys = syscall.ENOSYS

// Setup answers ENOSYS.
func Setup(uint32, *abi.Params) (int, syscall.Errno) { return -1, noSys }

// Enter answers ENOSYS.
func Enter(int, uint32, uint32, uint32, unsafe.Pointer, uintptr) (int, syscall.Errno) {
	return -1, noSys
}

// EnterRaw answers ENOSYS.
func EnterRaw(int, uintptr, uintptr) (int, syscall.Errno) { return -1, noSys }

// EnterRawFor is [EnterRaw] with a number of completions.
func EnterRawFor(int, uintptr, uintptr, uintptr) (int, syscall.Errno) { return -1, noSys }

// Register answers ENOSYS.
func Register(int, uint32, unsafe.Pointer, uint32) (int, syscall.Errno) { return -1, noSys }

// EnterAt answers ENOSYS.
func EnterAt(int, uint32, uint32, uint32, uintptr, uintptr) (int, syscall.Errno) { return -1, noSys }

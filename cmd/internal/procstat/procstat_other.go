// SPDX-License-Identifier: MIT

//go:build !linux

package procstat

import (
	"errors"
	"fmt"
	"time"
)

// ErrNotCounted is matched by the error of [CountSyscalls].
var ErrNotCounted = errors.New("system calls cannot be counted")

// Syscalls counts nothing here.
type Syscalls struct{}

// CountSyscalls returns ErrNotCounted: it needs Linux.
func CountSyscalls(int) (*Syscalls, error) {
	return nil, fmt.Errorf("%w: %w", ErrNotCounted, errors.ErrUnsupported)
}

// Read counts nothing here.
func (*Syscalls) Read() (int64, error) { return 0, ErrNotCounted }

// Close does nothing here.
func (*Syscalls) Close() error { return nil }

// CPU returns an error: it needs Linux.
func CPU(int) (time.Duration, error) { return 0, fmt.Errorf("CPU clock: %w", errors.ErrUnsupported) }

// Resident returns an error: it needs Linux.
func Resident(int) (int64, error) { return 0, fmt.Errorf("memory: %w", errors.ErrUnsupported) }

// Sleeps returns an error: it needs Linux.
func Sleeps(int) (int64, error) { return 0, fmt.Errorf("sleeps: %w", errors.ErrUnsupported) }

// Ports returns 0: the number is unknown here.
func Ports() int { return 0 }

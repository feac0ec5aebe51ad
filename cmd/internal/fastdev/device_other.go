// SPDX-License-Identifier: MIT

//go:build !linux

package fastdev

import (
	"context"
	"errors"
	"fmt"
)

// Device is a mounted file system in memory. It exists on Linux only.
type Device struct{}

// Make returns an error that matches [ErrUnavailable].
func Make(context.Context, int64) (*Device, error) {
	return nil, fmt.Errorf("%w: %w: loop devices are Linux's", ErrUnavailable, errors.ErrUnsupported)
}

// Dir returns "".
func (*Device) Dir() string { return "" }

// Filesystem returns "".
func (*Device) Filesystem() string { return "" }

// Note returns "".
func (*Device) Note() string { return "" }

// Close does nothing.
func (*Device) Close() error { return nil }

// SPDX-License-Identifier: MIT

//go:build !linux

package soak

import (
	"context"
	"errors"
	"fmt"
)

// Run returns an error: it needs Linux.
func Run(context.Context, Options) (*Summary, error) {
	return nil, fmt.Errorf("soak: %w on this system", errors.ErrUnsupported)
}

// SPDX-License-Identifier: MIT

//go:build !linux

package syncprobe

import (
	"context"
	"errors"
	"fmt"
)

// Measure needs Linux.
func Measure(_ context.Context, dir string) (Report, error) {
	return Report{Dir: dir}, fmt.Errorf("syncs are measured on Linux only: %w", errors.ErrUnsupported)
}

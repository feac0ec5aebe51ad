// SPDX-License-Identifier: MIT

//go:build !linux

package loadgen

import (
	"context"
	"errors"
	"fmt"
)

// Run returns an error: it needs epoll.
func Run(context.Context, Job, func(begin bool)) (Result, error) {
	return Result{}, fmt.Errorf("load generator: %w", errors.ErrUnsupported)
}

// SPDX-License-Identifier: MIT

//go:build !linux

package workload

import (
	"errors"
	"fmt"

	"github.com/ringside-io/ringside/watch"
)

func (w Watch) open(...watch.Mode) (*watchTurns, func() error, error) {
	return nil, func() error { return nil }, fmt.Errorf("watch %ss: %w", w.Source, errors.ErrUnsupported)
}

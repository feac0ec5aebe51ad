// SPDX-License-Identifier: MIT

//go:build !unix

package ringloop

import (
	"errors"
	"time"
)

// Poller exists on Unix only.
type Poller struct{}

func NewPoller(int, string) (*Poller, error)     { return nil, errors.ErrUnsupported }
func (*Poller) Wait(func(fd uintptr) bool) error { return errors.ErrUnsupported }
func (*Poller) SetDeadline(time.Time) error      { return errors.ErrUnsupported }
func (*Poller) Close() error                     { return nil }

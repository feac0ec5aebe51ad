// SPDX-License-Identifier: MIT

//go:build !linux

package main

import (
	"errors"
	"time"
)

func serve(string, time.Duration) error { return errors.ErrUnsupported }

// SPDX-License-Identifier: MIT

//go:build !linux

package ufile

import "errors"

func fallocate(int, FallocateMode, int64, int64) error { return errors.ErrUnsupported }

func fadvise(int, int64, int64, Advice) error { return errors.ErrUnsupported }

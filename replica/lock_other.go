// SPDX-License-Identifier: MIT

//go:build !linux

package replica

import (
	"errors"
	"os"
)

const supported = false

func tryLock(*os.File, int64) (bool, error) { return false, errors.ErrUnsupported }

func unlock(*os.File, int64) error { return errors.ErrUnsupported }

func mapShared(*os.File, int) ([]byte, error) { return nil, errors.ErrUnsupported }

func unmap([]byte) error { return nil }

func space(string) (free, total uint64, err error) { return 0, 0, errors.ErrUnsupported }

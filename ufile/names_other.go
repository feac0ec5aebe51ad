// SPDX-License-Identifier: MIT

//go:build !linux

package ufile

import "errors"

const (
	renameNoReplace = 1 + iota
	renameExchange
)

func renameNames(string, string, uint) error { return errors.ErrUnsupported }

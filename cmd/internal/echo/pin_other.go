// SPDX-License-Identifier: MIT

//go:build !linux

package echo

import "errors"

// pinned cannot pin.
func pinned(bool, func() error) error { return errors.New("--pin needs Linux") }

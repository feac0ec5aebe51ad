// SPDX-License-Identifier: MIT

//go:build !linux

package echo

import "errors"

// pinned returns an error: there is no pinning here.
func pinned(bool, func() error) error { return errors.New("--pin needs Linux") }

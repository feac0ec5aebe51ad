// SPDX-License-Identifier: MIT

//go:build !linux

package event

import "errors"

// startLoops returns an error: loops exist on Linux only.
func (*Server) startLoops(string, Mode) error { return errors.ErrUnsupported }

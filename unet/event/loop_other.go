// SPDX-License-Identifier: MIT

//go:build !linux

package event

import "errors"

// startLoops is for Linux.
func (*Server) startLoops(string, Mode) error { return errors.ErrUnsupported }

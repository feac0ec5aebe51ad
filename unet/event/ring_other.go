// SPDX-License-Identifier: MIT

//go:build !linux

package event

import "errors"

// startRing is for Linux; usable has refused before.
func (*Server) startRing(string) error { return errors.ErrUnsupported }

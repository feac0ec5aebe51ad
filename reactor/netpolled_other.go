// SPDX-License-Identifier: MIT

//go:build !unix

package reactor

import "errors"

// netpolled exists on systems with a netpoller for descriptors only.
type netpolled struct{ fd int }

func (*netpolled) start(func(), func(error)) error { return errors.ErrUnsupported }
func (*netpolled) stop() error                     { return nil }

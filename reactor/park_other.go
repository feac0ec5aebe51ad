// SPDX-License-Identifier: MIT

//go:build !unix

package reactor

import "errors"

// parking exists on systems with a netpoller for descriptors only.
type parking struct{}

func (*parking) start(*loop) error { return errors.ErrUnsupported }
func (*parking) stop() error       { return nil }

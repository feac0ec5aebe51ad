// SPDX-License-Identifier: MIT

//go:build !linux

package workload

import "github.com/ringside-io/ringside/cmd/internal/engine"

// adviseRandom does nothing on systems without this advice.
func adviseRandom(engine.File) error { return nil }

// SPDX-License-Identifier: MIT

//go:build !linux

package event

import "testing"

// noneLeft has nothing to look at without rings.
func (s *Server) noneLeft(*testing.T) {}

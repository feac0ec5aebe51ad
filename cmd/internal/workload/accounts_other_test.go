// SPDX-License-Identifier: MIT

//go:build !linux

package workload

import "testing"

// accountsReads is not known elsewhere.
func accountsReads(*testing.T, string) bool { return false }

// SPDX-License-Identifier: MIT

//go:build !linux

package workload

import "testing"

// accountsReads returns false: other systems do not report it.
func accountsReads(*testing.T, string) bool { return false }

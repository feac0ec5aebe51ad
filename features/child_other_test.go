// SPDX-License-Identifier: MIT

//go:build !linux

package features_test

// There is nothing to forbid on other systems.
const childEnv = ""

func child(string) int { return 1 }

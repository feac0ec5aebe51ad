// SPDX-License-Identifier: MIT

//go:build !linux

package features_test

// Other systems have no io_uring to forbid.
const childEnv = ""

func child(string) int { return 1 }

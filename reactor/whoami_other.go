// SPDX-License-Identifier: MIT

//go:build !linux

package reactor

func threadID() int { return 0 }

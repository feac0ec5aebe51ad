// SPDX-License-Identifier: MIT

//go:build !unix

package main

// descriptors returns 0: there is no limit here.
func descriptors() int { return 0 }

// ignoreFileSizeSignal does nothing: there is no such signal.
func ignoreFileSizeSignal() {}

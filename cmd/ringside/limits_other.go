// SPDX-License-Identifier: MIT

//go:build !unix

package main

// descriptors are not limited here.
func descriptors() int { return 0 }

// ignoreFileSizeSignal does nothing: there is no such signal.
func ignoreFileSizeSignal() {}

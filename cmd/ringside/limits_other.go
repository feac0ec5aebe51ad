// SPDX-License-Identifier: MIT

//go:build !unix

package main

// ignoreFileSizeSignal does nothing: there is no such signal.
func ignoreFileSizeSignal() {}

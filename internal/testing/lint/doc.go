// SPDX-License-Identifier: MIT

// Package lint holds the rules of this repository as tests: which package may
// know which, where unsafe and golang.org/x/sys may be used, and what no file
// may contain. It has no code of its own.
package lint

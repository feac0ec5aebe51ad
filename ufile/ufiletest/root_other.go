// SPDX-License-Identifier: MIT

//go:build !linux

package ufiletest

// rootFlags are the flags with which rootOpen opens files, in addition to none.
func rootFlags() []int { return commonFlags }

// special adds nothing.
func (c *rootScript) special(string) {}

// specialFiles opens nothing.
func (c *rootScript) specialFiles(Root) {}

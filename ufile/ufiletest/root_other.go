// SPDX-License-Identifier: MIT

//go:build !linux

package ufiletest

// rootFlags are the flags of files in rootOpen, beside none.
func rootFlags() []int { return commonFlags }

// special adds nothing.
func (c *rootScript) special(string) {}

// specialFiles opens nothing.
func (c *rootScript) specialFiles(Root) {}

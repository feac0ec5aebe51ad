// SPDX-License-Identifier: MIT

//go:build !linux

package ufile

import "io/fs"

// sparse copies holes as zeros.
func (c *copying) sparse(_ fs.FileInfo, _, to int64) error {
	return c.data(c.from, to, c.o.Blocks)
}

// SPDX-License-Identifier: MIT

//go:build !linux

package appendlog

type identity struct{}

func (*dirFile) identify() error { return nil }

// Check returns an error when the file's name does not lead to it any more.
func (f *dirFile) Check() error { return f.compare() }

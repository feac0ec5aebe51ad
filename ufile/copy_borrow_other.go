// SPDX-License-Identifier: MIT

//go:build !linux

package ufile

import "os"

// borrowOS makes a File that os serves, without a claim on f.
func borrowOS(f *os.File) (*File, func(), error) {
	return &File{f: f, state: &state{sys: defaultSystem()}, fd: -1}, func() {}, nil
}

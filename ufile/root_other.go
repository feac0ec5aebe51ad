// SPDX-License-Identifier: MIT

//go:build !linux

package ufile

import (
	"os"
	"runtime"
)

// osRoot is os.Root.
type osRoot struct{ *os.Root }

func openTree(name string) (tree, error) {
	r, err := os.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	return osRoot{r}, nil
}

func (r osRoot) openRoot(name string) (tree, error) {
	sub, err := r.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	return osRoot{sub}, nil
}

func (r osRoot) backend() (name, reason string) {
	return "os", "only Linux has openat2, this is " + runtime.GOOS
}

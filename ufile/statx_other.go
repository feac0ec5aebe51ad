// SPDX-License-Identifier: MIT

//go:build !linux

package ufile

import (
	"io/fs"
	"os"
)

func statxFile(_ int, f *os.File, _ StatxMask) (StatxInfo, error) {
	info, err := f.Stat()
	if err != nil {
		return StatxInfo{}, cause(err)
	}
	return statxOfInfo(info), nil
}

// addSysInfo adds nothing: the fields of stat(2) differ between systems.
func addSysInfo(*StatxInfo, fs.FileInfo) {}

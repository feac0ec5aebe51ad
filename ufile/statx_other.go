// SPDX-License-Identifier: MIT

//go:build !linux

package ufile

import (
	"io/fs"
	"os"
)

func statxFile(_ int, f *os.File, _ StatxMask, _ StatxFlags) (StatxInfo, error) {
	info, err := f.Stat()
	if err != nil {
		return StatxInfo{}, cause(err)
	}
	return statxOfInfo(info), nil
}

func statxName(name string, _ StatxMask, flags StatxFlags) (StatxInfo, error) {
	return statxByOs(name, flags)
}

// addSysInfo adds nothing: the fields of stat(2) differ between systems.
func addSysInfo(*StatxInfo, fs.FileInfo) {}

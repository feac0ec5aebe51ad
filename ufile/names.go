// SPDX-License-Identifier: MIT

package ufile

import "os"

// RenameNoReplace renames a file or directory as os.Rename, but fails with an
// error that matches fs.ErrExist where the new name exists: it looks and renames
// in one step.
//
// It is a plain system call. Errors are *os.LinkError with the Op "rename",
// EINVAL where the file system cannot do it. Linux 3.15; elsewhere the error
// matches errors.ErrUnsupported.
func RenameNoReplace(oldname, newname string) error {
	return linkError("rename", oldname, newname, renameNames(oldname, newname, renameNoReplace))
}

// Exchange gives two files or directories each other's name, in one step; both
// must exist. Errors are as in [RenameNoReplace].
func Exchange(oldname, newname string) error {
	return linkError("rename", oldname, newname, renameNames(oldname, newname, renameExchange))
}

// linkError makes an error of a bare one, and nil of nil.
func linkError(op, oldname, newname string, err error) error {
	if err == nil {
		return nil
	}
	return &os.LinkError{Op: op, Old: oldname, New: newname, Err: err}
}

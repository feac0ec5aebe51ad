// SPDX-License-Identifier: MIT

package ufile

import "github.com/ringside-io/ringside/internal/sys"

const (
	renameNoReplace = sys.RenameNoReplace
	renameExchange  = sys.RenameExchange
)

func renameNames(oldname, newname string, how uint) error {
	return sys.RenameAt2(sys.AtCwd, oldname, sys.AtCwd, newname, how)
}

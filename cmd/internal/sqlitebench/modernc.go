// SPDX-License-Identifier: MIT

//go:build peers

package sqlitebench

import "modernc.org/sqlite"

// It needs a build tag: this library is two thirds of the command's download.

func init() {
	peers[Modernc] = peer{"modernc.org/sqlite", func(path string) (Conn, error) { return openDriver(&sqlite.Driver{}, path) }}
}

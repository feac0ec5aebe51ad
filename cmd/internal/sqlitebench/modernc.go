// SPDX-License-Identifier: MIT

//go:build peers

package sqlitebench

import "modernc.org/sqlite"

// With the tag only: it is two thirds of all that the command would download.

func init() {
	peers[Modernc] = peer{"modernc.org/sqlite", func(path string) (Conn, error) { return openDriver(&sqlite.Driver{}, path) }}
}

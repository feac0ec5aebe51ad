// SPDX-License-Identifier: MIT

//go:build peers || (linux && amd64 && !race)

package sqlitebench

import "modernc.org/sqlite"

// Its size costs a minute of compiling with the race detector, and again for every other platform:
// there it takes the tag.

func init() {
	peers[Modernc] = peer{"modernc.org/sqlite", func(path string) (Conn, error) { return openDriver(&sqlite.Driver{}, path) }}
}

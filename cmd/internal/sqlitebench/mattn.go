// SPDX-License-Identifier: MIT

//go:build peers && cgo

package sqlitebench

import sqlite3 "github.com/mattn/go-sqlite3"

func init() {
	peers[Mattn] = peer{"github.com/mattn/go-sqlite3", func(path string) (Conn, error) { return openDriver(&sqlite3.SQLiteDriver{}, path) }}
}

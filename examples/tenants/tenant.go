// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/ringside-io/ringside/sqlitevfs/tenants"
)

// newPool makes the pool of databases. An open database costs descriptors and half a megabyte or
// more, a closed one costs a file.
func newPool(c config) (*tenants.Pool, error) {
	return tenants.Open(tenants.Options{Dir: c.dir, VFS: vfsName(c.vfs), MaxOpen: c.open, Busy: patience, Init: migrate})
}

// migrate runs each time a database is opened.
func migrate(c *sqlite3.Conn, _ string) error {
	return c.Exec(`CREATE TABLE IF NOT EXISTS items(id INTEGER PRIMARY KEY, body BLOB NOT NULL)`)
}

// checkVFS returns an error if there is no VFS of that name.
func checkVFS(name string) error {
	if vfs.Find(vfsName(name)) == nil {
		return fmt.Errorf("unknown VFS %q: want default, ringside, ringside-plain, ringside-prefetch, ringside-group or ringside-log", name)
	}
	return nil
}

// vfsName returns SQLite's name of a VFS.
func vfsName(name string) string {
	if name == "default" {
		return "os"
	}
	return name
}

var errNoItem = errors.New("there is no such item")

// insert stores an item, and returns its number when it is durable.
func insert(c *tenants.Conn, body []byte) (id int64, err error) {
	s, err := c.Stmt(`INSERT INTO items(body) VALUES(?)`)
	if err != nil {
		return 0, err
	}
	if err := s.BindBlob(1, body); err != nil {
		return 0, err
	}
	if err := s.Exec(); err != nil {
		return 0, err
	}
	return c.Raw().LastInsertRowID(), nil
}

// fetch returns an item.
func fetch(c *tenants.Conn, id int64) ([]byte, error) {
	s, err := c.Stmt(`SELECT body FROM items WHERE id = ?`)
	if err != nil {
		return nil, err
	}
	if err := s.BindInt64(1, id); err != nil {
		return nil, err
	}
	if s.Step() {
		return s.ColumnBlob(0, nil), nil
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	return nil, errNoItem
}

// count returns how many items there are.
func count(c *tenants.Conn) (int64, error) {
	s, err := c.Stmt(`SELECT count(*) FROM items`)
	if err != nil {
		return 0, err
	}
	s.Step()
	return s.ColumnInt64(0), s.Err()
}

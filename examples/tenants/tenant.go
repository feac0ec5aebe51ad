// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"

	_ "github.com/ncruces/go-sqlite3/driver"
	"github.com/ncruces/go-sqlite3/vfs"

	_ "github.com/ringside-io/ringside/sqlitevfs"
)

var (
	errName    = errors.New("a tenant's name consists of a to z, 0 to 9, - and _, at most 64 of them, and begins with a letter or digit")
	errMissing = errors.New("there is no such tenant")
)

// names matches the valid names of tenants. They have no capital letters, because
// some file systems ignore case, and no characters with a meaning in a file system or
// a URI.
var names = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// fileOf returns the name of a tenant's database below the root. Only this function
// makes file names of names from requests.
func fileOf(tenant string) (string, error) {
	if !names.MatchString(tenant) {
		return "", errName
	}
	file := tenant + ".db"
	if !filepath.IsLocal(file) { // the name of a device on Windows
		return "", errName
	}
	return file, nil
}

// present reports whether there is a database below the root. SQLite opens it by
// its path, so a link, which might lead elsewhere, is refused here.
func present(root *os.Root, file string) (bool, error) {
	info, err := root.Lstat(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case !info.Mode().IsRegular():
		return false, fmt.Errorf("%s is not a regular file", file)
	}
	return true, nil
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

// source returns the URI of a database for database/sql. SQLite runs the pragmas of a
// URI for each connection, in order: the timeout of locks is the first.
func source(path, vfs string) string {
	path = filepath.ToSlash(path)
	if path[0] != '/' {
		path = "/" + path // C:/…
	}
	q := url.Values{
		"vfs":     {vfsName(vfs)},
		"_pragma": {"busy_timeout(10000)", "journal_mode(wal)", "synchronous(full)"},
		"_txlock": {"immediate"},
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String()
}

const schema = `CREATE TABLE IF NOT EXISTS items(id INTEGER PRIMARY KEY, body BLOB NOT NULL)`

// database is the open database of a tenant.
type database struct {
	db                 *sql.DB
	insert, get, count *sql.Stmt
}

func openDatabase(ctx context.Context, path, vfs string) (*database, error) {
	db, err := sql.Open("sqlite3", source(path, vfs))
	if err != nil {
		return nil, err
	}
	// SQLite has one writer at a time. A second connection would only take
	// memory and wait for locks, instead of waiting in database/sql's queue.
	db.SetMaxOpenConns(1)
	d := &database{db: db}
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	for query, s := range map[string]**sql.Stmt{
		`INSERT INTO items(body) VALUES(?)`:   &d.insert,
		`SELECT body FROM items WHERE id = ?`: &d.get,
		`SELECT count(*) FROM items`:          &d.count,
	} {
		if *s, err = db.PrepareContext(ctx, query); err != nil {
			return nil, errors.Join(err, d.close())
		}
	}
	return d, nil
}

func (d *database) close() error {
	for _, s := range []*sql.Stmt{d.insert, d.get, d.count} {
		if s != nil {
			_ = s.Close() // returns the error of the statement's last run
		}
	}
	return d.db.Close()
}

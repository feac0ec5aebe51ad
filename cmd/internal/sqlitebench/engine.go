// SPDX-License-Identifier: MIT

// Package sqlitebench measures SQLite: the 16 tests of its old speed page, commits to many
// databases, and reads of a database that is not in the page cache.
//
// The suite compares ways to access the disk. So every engine is driven in the same way: statement
// by statement through one connection, without a connection pool.
package sqlitebench

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/sqlitevfs"
)

// These are the names of the engines. All but the last two are github.com/ncruces/go-sqlite3 with
// different VFSes.
const (
	Memory    = "memory"             // a database in memory
	Default   = "default"            // the default VFS
	Ringside  = "ringside"           // package sqlitevfs with its defaults
	Plain     = "ringside-plain"     // package sqlitevfs with its parts off: the default VFS plus directory syncs
	NoDirSync = "ringside-nodirsync" // package sqlitevfs without directory syncs
	Group     = "ringside-group"     // package sqlitevfs with group sync always on
	Log       = "ringside-log"       // package sqlitevfs with the log shared by databases
	Modernc   = "modernc"            // modernc.org/sqlite
	Mattn     = "mattn"              // github.com/mattn/go-sqlite3, which needs a C compiler
)

// Engines are all engines, in the order of tables.
var Engines = []string{Memory, Default, Plain, NoDirSync, Ringside, Group, Log, Modernc, Mattn}

// These are the measured journal modes. All but Extra and WALNormal have synchronous=FULL.
const (
	Rollback = "rollback" // journal_mode=DELETE
	// Extra is journal_mode=DELETE with synchronous=EXTRA: every VFS syncs the directory, as
	// sqlitevfs does with FULL.
	Extra     = "delete-extra"
	Persist   = "persist"
	WAL       = "wal"
	WALNormal = "wal-normal" // with synchronous=NORMAL: only checkpoints sync
)

// Journals are all journal modes.
var Journals = []string{Rollback, Extra, Persist, WAL, WALNormal}

// UsesWAL reports whether journal is a mode with a write-ahead log.
func UsesWAL(journal string) bool { return journal == WAL || journal == WALNormal }

// Conn is a connection to a database. It belongs to one goroutine at a time.
type Conn interface {
	// Exec runs one statement to completion.
	Exec(sql string) error
	// Prepare compiles one statement. It must be closed before the connection.
	Prepare(sql string) (Stmt, error)
	// Close closes the connection.
	Close() error
}

// Stmt is a compiled statement with at most one parameter.
type Stmt interface {
	// Exec runs the statement.
	Exec(arg int64) error
	// Int runs the statement and returns the first column of its first row. A result without rows
	// is an error.
	Int(arg int64) (int64, error)
	// Close frees the statement.
	Close() error
}

var errNoRow = errors.New("the statement returned no row")

// peer is a library that is only compiled in on request and where possible.
type peer struct {
	module string
	open   func(path string) (Conn, error)
}

// peers are the compiled-in libraries, by the names of engines.
var peers = map[string]peer{}

// Probe returns an error if an engine cannot be used in this program.
func Probe(engine string) error {
	if !slices.Contains(Engines, engine) {
		return fmt.Errorf("unknown engine %q", engine)
	}
	if _, ok := peers[engine]; ok || engine != Modernc && engine != Mattn {
		return nil
	}
	if engine == Mattn {
		return errors.New("built without it: needs cgo, a C compiler and -tags peers")
	}
	return errors.New("built without it: needs -tags peers")
}

// Version returns the name of the library of an engine, with its version if known.
func Version(engine string) string {
	module := "github.com/ncruces/go-sqlite3"
	if p, ok := peers[engine]; ok {
		module = p.module
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == module {
				return module + " " + dep.Version
			}
		}
	}
	return module
}

// Open opens a database in a journal mode of this package, and creates it if it does not exist. A connection
// waits for up to a minute for a locked database.
func Open(engine, path, journal string) (Conn, error) {
	if err := Probe(engine); err != nil {
		return nil, err
	}
	c, err := open(engine, path)
	if err != nil {
		return nil, err
	}
	if err := configure(c, engine, journal); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func open(engine, path string) (Conn, error) {
	if p, ok := peers[engine]; ok {
		return p.open(path)
	}
	params := url.Values{}
	switch engine {
	case Memory:
		return openNcruces(":memory:")
	case Default:
	case NoDirSync:
		params.Set("vfs", sqlitevfs.Name)
		params.Set("dirsync", sqlitevfs.Off.String())
	default:
		params.Set("vfs", engine) // Engines of sqlitevfs have the name of their VFS.
	}
	// A Windows path begins with a drive, and needs a slash before it.
	uri := url.URL{Scheme: "file", OmitHost: true, Path: "/" + strings.TrimPrefix(filepath.ToSlash(path), "/"), RawQuery: params.Encode()}
	return openNcruces(uri.String())
}

// configure sets the options that all engines share, and checks the journal mode.
func configure(c Conn, engine, journal string) error {
	want, ok := map[string]struct {
		mode        string
		synchronous int64 // 1 is NORMAL, 2 is FULL, 3 is EXTRA
	}{Rollback: {"delete", 2}, Extra: {"delete", 3}, Persist: {"persist", 2}, WAL: {"wal", 2}, WALNormal: {"wal", 1}}[journal]
	switch {
	case !ok:
		return fmt.Errorf("unknown journal mode %q", journal)
	case engine == Memory:
		return nil
	}
	for _, sql := range []string{"PRAGMA busy_timeout=60000", "PRAGMA journal_mode=" + want.mode, fmt.Sprint("PRAGMA synchronous=", want.synchronous)} {
		if err := c.Exec(sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	for _, check := range []struct {
		sql  string
		want int64
	}{
		{"SELECT journal_mode='" + want.mode + "' FROM pragma_journal_mode", 1}, {"PRAGMA synchronous", want.synchronous},
	} {
		if err := expect(c, check.sql, check.want); err != nil {
			return err
		}
	}
	return nil
}

// expect returns an error if the result of a statement is not want.
func expect(c Conn, sql string, want int64) error {
	got, err := selected(c, sql)
	if err == nil && got != want {
		err = fmt.Errorf("%d, not %d", got, want)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", sql, err)
	}
	return err
}

// selected returns the result of a statement.
func selected(c Conn, sql string) (n int64, err error) {
	s, err := c.Prepare(sql)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.Int(0)
}

// inRound runs a round with a temporary directory in dir, which must exist.
func inRound(dir string, run func(dir string) (measure.Sample, error)) (s measure.Sample, err error) {
	if dir, err = os.MkdirTemp(dir, "round-"); err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return run(dir)
}

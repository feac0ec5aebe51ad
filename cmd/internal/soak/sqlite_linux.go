// SPDX-License-Identifier: MIT

package soak

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/ncruces/go-sqlite3"

	_ "github.com/ringside-io/ringside/sqlitevfs" // registers its VFS
)

const (
	writers = 2   // of each database
	readers = 2   // of each database
	kept    = 256 // items of each writer that are not deleted
	mostSet = 8   // items of a transaction
	mostLen = 4 << 10
	// checkpointEvery is after how many transactions a writer empties the WAL.
	checkpointEvery = 256
)

// database is one that is written and read until the round is over.
type database struct {
	*round
	number    int
	vfs, mode string
	path      string
	// committed is how many items of each writer were acknowledged.
	committed [writers]atomic.Int64
}

// databases are those of a round: two share a log, the others have each a WAL or a rollback journal.
func (r *round) databases() []func() {
	var parts []func()
	for i, kind := range []struct{ vfs, mode string }{
		{"ringside-log", "wal"}, {"ringside-log", "wal"}, {"ringside", "wal"}, {"ringside", "delete"}, {"ringside", "persist"},
	} {
		d := &database{round: r, number: i, vfs: kind.vfs, mode: kind.mode, path: r.path("%d.db", i)}
		parts = append(parts, d.soak)
	}
	return parts
}

func (d *database) check(what string, err error) {
	if err != nil {
		d.problem(SQLite, "%s, vfs=%s journal_mode=%s: %v", what, d.vfs, d.mode, err)
	}
}

// soak writes and reads at the same time, and then looks at all there is.
func (d *database) soak() {
	if err := d.with(d.create); err != nil {
		d.check("create", err)
		return
	}
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() { d.check("writer", d.with(func(c *sqlite3.Conn) error { return d.write(c, i) })) })
	}
	for i := range readers {
		all.Go(func() { d.check("reader", d.with(func(c *sqlite3.Conn) error { return d.read(c, i) })) })
	}
	all.Wait()
	d.check("at the end", d.with(d.verify))
	for _, suffix := range []string{"", "-journal", "-wal", "-shm"} {
		_ = os.Remove(d.path + suffix) // what is there: the next round has its own
	}
}

// with calls f with a connection.
func (d *database) with(f func(*sqlite3.Conn) error) (err error) {
	q := url.Values{"vfs": {d.vfs}}
	u := url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(d.path), RawQuery: q.Encode()}
	c, err := sqlite3.Open(u.String())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	c.SetInterrupt(d.cut)
	err = c.Exec(fmt.Sprintf("PRAGMA busy_timeout=%d; PRAGMA journal_mode=%s; PRAGMA synchronous=FULL", patience.Milliseconds(), d.mode))
	if err != nil {
		return err
	}
	return f(c)
}

func (d *database) create(c *sqlite3.Conn) error {
	err := c.Exec(`CREATE TABLE counter(writer INTEGER PRIMARY KEY, n INTEGER NOT NULL);
		CREATE TABLE item(writer INTEGER, n INTEGER, body BLOB NOT NULL, UNIQUE(writer, n))`)
	for i := range writers {
		err = errors.Join(err, c.Exec(fmt.Sprintf("INSERT INTO counter VALUES(%d, 0)", i)))
	}
	return err
}

// prepared are the statements of a connection.
type prepared map[string]*sqlite3.Stmt

// run prepares a statement, once, and runs it; row is called for each row.
func (p prepared) run(c *sqlite3.Conn, sql string, row func(*sqlite3.Stmt) error, args ...any) (err error) {
	s := p[sql]
	if s == nil {
		if s, _, err = c.Prepare(sql); err != nil {
			return err
		}
		p[sql] = s
	}
	defer func() { err = errors.Join(err, s.Reset()) }()
	for i, arg := range args {
		switch arg := arg.(type) {
		case int64:
			err = s.BindInt64(i+1, arg)
		case []byte:
			err = s.BindBlob(i+1, arg)
		default:
			err = fmt.Errorf("%T is not bound", arg)
		}
		if err != nil {
			return err
		}
	}
	for s.Step() {
		if row != nil {
			if err := row(s); err != nil {
				return err
			}
		}
	}
	return nil // Reset returns the error of Step
}

func (p prepared) close() {
	for _, s := range p {
		_ = s.Close() // whose error was that of its last run
	}
}

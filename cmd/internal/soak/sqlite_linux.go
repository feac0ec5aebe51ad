// SPDX-License-Identifier: MIT

package soak

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/ncruces/go-sqlite3"
	"github.com/ringside-io/ringside/internal/testing/stress"
	_ "github.com/ringside-io/ringside/sqlitevfs"
)

const (
	writers = 2   // per database
	readers = 2   // per database
	kept    = 256 // items of each writer that are not deleted
	mostSet = 8   // maximum number of items in a transaction
	mostLen = 4 << 10
	// checkpointEvery is the number of transactions after which a writer checkpoints the WAL.
	checkpointEvery = 256
)

// database is a database that is written and read until the round is over.
type database struct {
	*round
	number    int
	vfs, mode string
	path      string
	// committed is the number of acknowledged items of each writer.
	committed [writers]atomic.Int64
}

// databases returns the databases of a round. Two share a log; the others have a WAL or a rollback
// journal each.
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

// soak writes and reads concurrently, and then verifies the whole database.
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
		_ = os.Remove(d.path + suffix) // best effort: the next round has files of its own
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

// prepared are the prepared statements of a connection.
type prepared map[string]*sqlite3.Stmt

// run prepares a statement on its first use, and runs it. It calls row for each row.
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
		_ = s.Close() // its error is that of the last run
	}
}

// body returns the bytes of an item. The length is derived from the number.
func (d *database) body(p []byte, writer int, n int64) []byte {
	p = p[:1+uint64(n)*2654435761>>7%mostLen]
	stress.Bytes(p, uint64(d.number)<<48|uint64(writer)<<40|uint64(n)<<13)
	return p
}

// write adds items and removes old ones in batches, until the round is over.
func (d *database) write(c *sqlite3.Conn, writer int) error {
	random, p := d.random(2000+10*d.number+writer), make(prepared)
	defer p.close()
	count := 0
	for n := int64(0); d.more.Err() == nil; {
		set := int64(1 + random.IntN(mostSet))
		keep := random.IntN(10) > 0
		d.inFlight.Add(1)
		err := d.transaction(c, p, writer, n, set, keep)
		d.inFlight.Add(-1)
		if err != nil {
			return err
		}
		if keep {
			n += set
			d.committed[writer].Store(n)
		}
		d.done(SQLite, 1)
		// Readers that never pause prevent the WAL from being reset.
		if count++; d.mode == "wal" && count%checkpointEvery == 0 {
			if err := p.run(c, "PRAGMA wal_checkpoint(TRUNCATE)", nil); err != nil {
				return fmt.Errorf("checkpoint: %w", err)
			}
		}
	}
	return nil
}

// transaction adds items after the n-th of a writer, and commits or rolls back.
func (d *database) transaction(c *sqlite3.Conn, p prepared, writer int, n, set int64, keep bool) error {
	if err := p.run(c, "BEGIN IMMEDIATE", nil); err != nil {
		return err
	}
	who, buf := int64(writer), make([]byte, mostLen)
	var err error
	for i := n + 1; i <= n+set && err == nil; i++ {
		body := d.body(buf, writer, i)
		if d.o.spoil != nil {
			d.o.spoil(SQLite, body)
		}
		err = p.run(c, "INSERT INTO item VALUES(?, ?, ?)", nil, who, i, body)
	}
	if err == nil {
		err = p.run(c, "DELETE FROM item WHERE writer=? AND n<=?", nil, who, n+set-kept)
	}
	if err == nil {
		err = p.run(c, "UPDATE counter SET n=? WHERE writer=?", nil, n+set, who)
	}
	if err == nil && keep {
		return p.run(c, "COMMIT", nil)
	}
	return errors.Join(err, p.run(c, "ROLLBACK", nil))
}

// read checks the content that transactions see, until the round is over.
func (d *database) read(c *sqlite3.Conn, reader int) error {
	random, p := d.random(3000+10*d.number+reader), make(prepared)
	defer p.close()
	for d.more.Err() == nil {
		d.inFlight.Add(1)
		err := d.look(c, p, random.IntN(writers), random)
		d.inFlight.Add(-1)
		if err != nil {
			return err
		}
		d.done(SQLite, 1)
	}
	return nil
}

// look checks that a transaction sees at least the items acknowledged before, only whole
// transactions, and the right bytes.
func (d *database) look(c *sqlite3.Conn, p prepared, writer int, random *rand.Rand) (err error) {
	least := d.committed[writer].Load()
	if err := p.run(c, "BEGIN", nil); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.run(c, "END", nil)) }()
	n, err := d.count(c, p, writer)
	switch {
	case err != nil:
		return err
	case n < least:
		return fmt.Errorf("lost: %d items of writer %d are there, of %d that were acknowledged", n, writer, least)
	case n == 0:
		return nil
	}
	return d.compare(c, p, writer, n-random.Int64N(min(n, kept)))
}

// count returns the number of a writer's last item, and checks the number of items.
func (d *database) count(c *sqlite3.Conn, p prepared, writer int) (n int64, err error) {
	var last, items int64
	who := int64(writer)
	err = p.run(c, "SELECT n FROM counter WHERE writer=?", func(s *sqlite3.Stmt) error {
		n = s.ColumnInt64(0)
		return nil
	}, who)
	if err != nil {
		return 0, err
	}
	err = p.run(c, "SELECT coalesce(max(n), 0), count(*) FROM item WHERE writer=?", func(s *sqlite3.Stmt) error {
		last, items = s.ColumnInt64(0), s.ColumnInt64(1)
		return nil
	}, who)
	if err == nil && (last != n || items != min(n, kept)) {
		err = fmt.Errorf("half a transaction: writer %d counts %d items, the last is %d and there are %d", writer, n, last, items)
	}
	return n, err
}

// compare checks the bytes of an item.
func (d *database) compare(c *sqlite3.Conn, p prepared, writer int, n int64) error {
	found := false
	err := p.run(c, "SELECT body FROM item WHERE writer=? AND n=?", func(s *sqlite3.Stmt) error {
		found = true
		return same(s.ColumnRawBlob(0), d.body(make([]byte, mostLen), writer, n), 0)
	}, int64(writer), n)
	if err == nil && !found {
		err = errors.New("it is missing")
	}
	if err != nil {
		err = fmt.Errorf("item %d of writer %d: %w", n, writer, err)
	}
	return err
}

// verify checks the database for corruption, and that it has exactly the acknowledged items.
func (d *database) verify(c *sqlite3.Conn) error {
	p := make(prepared)
	defer p.close()
	for writer := range writers {
		want := d.committed[writer].Load()
		n, err := d.count(c, p, writer)
		if err == nil && n != want {
			err = fmt.Errorf("%d items of writer %d, %d were acknowledged", n, writer, want)
		}
		for i := max(n-kept, 0) + 1; i <= n && err == nil; i++ {
			err = d.compare(c, p, writer, i)
		}
		if err != nil {
			return err
		}
	}
	return p.run(c, "PRAGMA integrity_check", func(s *sqlite3.Stmt) error {
		if said := s.ColumnText(0); said != "ok" {
			return fmt.Errorf("integrity_check: %s", said)
		}
		return nil
	})
}

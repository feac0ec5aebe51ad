// SPDX-License-Identifier: MIT

package soak

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/ncruces/go-sqlite3"

	"github.com/ringside-io/ringside/internal/scenario"
)

// body returns the bytes of an item, whose length its number says.
func (d *database) body(p []byte, writer int, n int64) []byte {
	p = p[:1+uint64(n)*2654435761>>7%mostLen]
	scenario.Bytes(p, uint64(d.number)<<48|uint64(writer)<<40|uint64(n)<<13)
	return p
}

// write adds items and removes old ones, some at a time, until the round is over.
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
		// Readers that never pause keep the WAL from beginning anew by itself.
		if count++; d.mode == "wal" && count%checkpointEvery == 0 {
			if err := p.run(c, "PRAGMA wal_checkpoint(TRUNCATE)", nil); err != nil {
				return fmt.Errorf("checkpoint: %w", err)
			}
		}
	}
	return nil
}

// transaction adds items after the n-th of a writer, and commits or takes them back.
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

// read judges what may be seen, in transactions, until the round is over.
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

// look sees at least what was acknowledged before, whole transactions only, and the right bytes.
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

// count returns the number of a writer's last item, and judges how many there are.
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

// compare judges the bytes of an item.
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

// verify finds exactly what was acknowledged, in a sound database.
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

// SPDX-License-Identifier: MIT

package sqlitebench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// These are the kinds of work of a cold round.
const (
	Scan       = "scan"       // all of a table whose rows were inserted in random order
	Index      = "index"      // CREATE INDEX on it
	Range      = "range"      // a tenth of the table, by key
	Lookups    = "lookups"    // rows by random keys, one after another
	Contiguous = "contiguous" // all of a table whose rows were inserted in order
	NoRowid    = "norowid"    // all of a WITHOUT ROWID table whose rows were inserted in random order
	LargePages = "16k"        // scan, with pages of 16 KiB
	// Make creates the databases for the other kinds.
	Make = "make"
)

// ColdWork are the measured kinds of work.
var ColdWork = []string{Scan, Index, Range, Lookups, Contiguous, NoRowid, LargePages}

// Cold reads a database that is not in the page cache.
type Cold struct {
	// Dir is the directory of the databases that Make created.
	Dir string `json:"dir"`
	// What is one of the constants above.
	What string `json:"what"`
	// Rows is the number of rows. Seed selects keys.
	Rows int    `json:"rows"`
	Seed uint64 `json:"seed"`
}

// Fragmented is the path of the database of most kinds of work in its directory.
const Fragmented = "fragmented.db"

// path returns the path of the database that the work reads.
func (c Cold) path() string {
	name := Fragmented
	switch c.What {
	case Contiguous, NoRowid, LargePages:
		name = c.What + ".db"
	}
	return filepath.Join(c.Dir, name)
}

// MinRows is the smallest number of rows.
const MinRows = 100

// value returns the column that queries sum.
func value(key int64) int64 { return key * 2654435761 & (1<<32 - 1) }

const (
	valueSQL = "(?1 * 2654435761) & 4294967295"
	rangeSQL = "SELECT sum(w) FROM t WHERE k BETWEEN %d AND %d"
)

func sum(from, to int64) (s int64) {
	for k := from; k <= to; k++ {
		s += value(k)
	}
	return s
}

// Run makes the databases, or reads one until its work is done.
func (c *Cold) Run(ctx context.Context, engine string, _ measure.Plan) (measure.Sample, error) {
	return inRound(c.Dir, func(dir string) (measure.Sample, error) { return c.run(ctx, engine, dir) })
}

func (c Cold) run(ctx context.Context, engine, dir string) (measure.Sample, error) {
	switch c.What {
	case Make:
		return measure.Sample{}, c.make(ctx)
	case Index:
		return c.index(ctx, engine, dir)
	}
	return c.on(ctx, engine)
}

// make creates the databases.
func (c Cold) make(ctx context.Context) error {
	keys := rand.New(rand.NewPCG(c.Seed, 0)).Perm(c.Rows)
	for _, c.What = range []string{Scan, Contiguous, NoRowid, LargePages} {
		key := func(i int) int64 { return int64(keys[i]) + 1 }
		if c.What == Contiguous {
			key = func(i int) int64 { return int64(i) + 1 }
		}
		if err := c.fill(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// fill creates the database that the work reads.
func (c Cold) fill(ctx context.Context, key func(int) int64) (err error) {
	page, without := 4096, ""
	switch c.What {
	case LargePages:
		page = 16384
	case NoRowid:
		without = " WITHOUT ROWID"
	}
	conn, err := open(Default, c.path())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	for _, sql := range []string{
		fmt.Sprintf("PRAGMA page_size=%d", page), "PRAGMA synchronous=OFF", "PRAGMA cache_size=-200000", "BEGIN",
		"CREATE TABLE t(k INTEGER PRIMARY KEY, w INTEGER, v TEXT)" + without,
	} {
		if err := conn.Exec(sql); err != nil {
			return err
		}
	}
	insert, err := conn.Prepare("INSERT INTO t VALUES(?1, " + valueSQL + ", hex(randomblob(200)))")
	if err != nil {
		return err
	}
	for i := range c.Rows {
		if err = insert.Exec(key(i)); err == nil && i%1024 == 0 {
			err = ctx.Err()
		}
		if err != nil {
			return errors.Join(err, insert.Close())
		}
	}
	return errors.Join(insert.Close(), conn.Exec("COMMIT"))
}

// query is a query with its arguments and the expected results.
type query struct {
	sql  string
	args []int64
	want func(arg int64) int64
}

// query returns the query for the kind of work.
func (c Cold) query() (q query, err error) {
	n := int64(c.Rows)
	q.args = []int64{0}
	switch c.What {
	case Scan, Contiguous, NoRowid, LargePages:
		q.sql, q.want = "SELECT sum(w) FROM t", func(int64) int64 { return sum(1, n) }
	case Range:
		from, to := n*2/5, n/2
		q.sql, q.want = fmt.Sprintf(rangeSQL, from, to), func(int64) int64 { return sum(from, to) }
	case Lookups:
		q.sql, q.want, q.args = "SELECT w FROM t WHERE k=?1", value, nil
		random := rand.New(rand.NewPCG(c.Seed, 1))
		for range min(3000, c.Rows/10) {
			q.args = append(q.args, random.Int64N(n)+1)
		}
	default:
		err = fmt.Errorf("unknown work %q", c.What)
	}
	return q, err
}

// on runs the query once.
func (c Cold) on(ctx context.Context, engine string) (s measure.Sample, err error) {
	path := c.path()
	q, err := c.query()
	if err != nil {
		return s, err
	}
	conn, err := Open(engine, path, Rollback)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	stmt, err := conn.Prepare(q.sql)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, stmt.Close()) }()
	size, err := datafile.SizeOf(path)
	if err != nil {
		return s, err
	}
	got := make([]int64, len(q.args))
	s, err = once(ctx, path, len(q.args), func(i int) (err error) {
		got[i], err = stmt.Int(q.args[i])
		return err
	})
	if err != nil {
		return s, err
	}
	for i, v := range got {
		if want := q.want(q.args[i]); v != want {
			return s, fmt.Errorf("%s of %d: %d, not %d", strings.TrimSpace(q.sql), q.args[i], v, want)
		}
	}
	if c.What != Range && c.What != Lookups {
		s.Bytes = size
	}
	return s, nil
}

// index creates an index in a copy of the database.
func (c Cold) index(ctx context.Context, engine, dir string) (s measure.Sample, err error) {
	path := filepath.Join(dir, Fragmented)
	if err := datafile.Copy(c.path(), path); err != nil {
		return s, err
	}
	conn, err := Open(engine, path, Rollback)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	s, err = once(ctx, path, 1, func(int) error { return conn.Exec("CREATE INDEX i ON t(w)") })
	if err != nil {
		return s, err
	}
	return s, expect(conn, "SELECT sum(w) FROM t INDEXED BY i WHERE w >= 0", sum(1, int64(c.Rows)))
}

// once evicts the file from the page cache and then runs n operations in turn.
func once(ctx context.Context, path string, n int, do func(i int) error) (measure.Sample, error) {
	done, cold := 0, false
	plan := measure.Plan{
		Goroutines: 1, Warm: time.Nanosecond, Measure: time.Hour, // It ends when all operations are done.
		Between: func() error {
			cold = true
			return datafile.EvictWritten(path)
		},
	}
	return measure.Run(ctx, plan, func(int) (measure.Op, error) {
		return func() (int, error) {
			if !cold || done == n {
				return 0, measure.ErrDone
			}
			done++
			return 0, do(done - 1)
		}, nil
	})
}

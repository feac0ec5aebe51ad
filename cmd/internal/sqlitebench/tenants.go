// SPDX-License-Identifier: MIT

package sqlitebench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/sqlitevfs"
)

// These are the kinds of commits of a tenant.
const (
	Row   = "row"   // a row of about 120 bytes
	Order = "order" // an order with five lines: five tables and four indexes, about 16 pages
	Blob  = "blob"  // 60 KB
)

// TenantWork are all kinds of commits.
var TenantWork = []string{Row, Order, Blob}

// Tenants commits repeatedly to each of several databases.
type Tenants struct {
	// Dir is an existing directory. The round creates a temporary one in it.
	Dir string `json:"dir"`
	// Work is the kind of commit. Empty means Row.
	Work string `json:"work,omitempty"`
	// Journal is one of the journal modes of this package.
	Journal string `json:"journal"`
	// Databases is the number of databases. Connections is the number of connections of each. Every
	// connection has a goroutine.
	Databases   int `json:"databases"`
	Connections int `json:"connections"`
	// Writer runs a writer that overwrites another file at WriterRate.
	Writer bool `json:"writer,omitempty"`
}

// tenant is one connection.
type tenant struct {
	path      string
	conn      Conn
	steps     []Stmt
	random    *rand.Rand
	committed int64
}

// tenantSchema has the tables of each kind of work. tenantSteps are the statements of a commit.
// tenantCount counts commits.
var (
	tenantSchema = map[string][]string{
		Row:  {"CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, n INTEGER, v TEXT)"},
		Blob: {"CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, n INTEGER, v BLOB)"},
		Order: {
			"CREATE TABLE customer(id INTEGER PRIMARY KEY, name TEXT, balance INTEGER, orders INTEGER)",
			"CREATE TABLE product(id INTEGER PRIMARY KEY, name TEXT, price INTEGER, stock INTEGER)",
			"CREATE TABLE orders(id INTEGER PRIMARY KEY, customer INTEGER, at INTEGER, state TEXT, total INTEGER)",
			"CREATE INDEX orders_customer ON orders(customer, at)",
			"CREATE INDEX orders_state ON orders(state, at)",
			"CREATE TABLE line(id INTEGER PRIMARY KEY, o INTEGER, product INTEGER, n INTEGER, price INTEGER)",
			"CREATE INDEX line_order ON line(o)",
			"CREATE INDEX line_product ON line(product, o)",
			numbers(1000) + "INSERT INTO customer SELECT i, 'customer '||i||hex(randomblob(40)), 0, 0 FROM n",
			numbers(2000) + "INSERT INTO product SELECT i, 'product '||i||hex(randomblob(40)), i, 100000 FROM n",
			numbers(5000) + "INSERT INTO orders SELECT -i, abs(random())%1000+1, i, 'sent', 0 FROM n",
			numbers(20000) + "INSERT INTO line SELECT -i, -i/4-1, abs(random())%2000+1, 1, 1 FROM n",
		},
	}
	tenantSteps = map[string][]string{
		Row:  {"INSERT INTO t(n, v) VALUES(?1, '" + strings.Repeat("ring", 25) + "')"},
		Blob: {"INSERT INTO t(n, v) VALUES(?1, zeroblob(60000))"},
		Order: append(append([]string{
			"BEGIN IMMEDIATE",
			"INSERT INTO orders(id, customer, at, state, total) SELECT max(max(id), 0)+1, ?1%1000+1, ?1, 'new', 0 FROM orders",
		}, slices.Repeat([]string{
			"INSERT INTO line(id, o, product, n, price) SELECT max(max(id), 0)+1, (SELECT max(id) FROM orders), ?1%2000+1, 1+?1%9, 1+?1%100 FROM line",
			"UPDATE product SET stock=stock-1-?1%9 WHERE id=(SELECT product FROM line WHERE id=(SELECT max(id) FROM line))",
		}, orderLines)...),
			"UPDATE customer SET balance=balance+1, orders=orders+1 WHERE id=?1%1000+1",
			"UPDATE orders SET total=(SELECT sum(n*price) FROM line WHERE o=orders.id) WHERE id=(SELECT max(id) FROM orders)",
			"COMMIT"),
	}
	tenantCount = map[string]string{
		Row: "SELECT count(*) FROM t", Blob: "SELECT count(*) FROM t",
		Order: "SELECT iif(5*count(*)=(SELECT count(*) FROM line WHERE id>0), count(*), -1) FROM orders WHERE id>0",
	}
)

const orderLines = 5

// numbers returns the beginning of a statement that selects from n(i), the numbers from 1.
func numbers(most int) string {
	return fmt.Sprintf("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<%d) ", most)
}

func (t Tenants) work() string { return cmp.Or(t.Work, Row) }

// Run measures commits.
func (t *Tenants) Run(ctx context.Context, engine string, plan measure.Plan) (measure.Sample, error) {
	return inRound(t.Dir, func(dir string) (measure.Sample, error) { return t.run(ctx, engine, dir, plan) })
}

// run measures commits. Afterwards each database must have every acknowledged row.
func (t Tenants) run(ctx context.Context, engine, dir string, plan measure.Plan) (s measure.Sample, err error) {
	var tenants []*tenant
	defer func() { err = errors.Join(err, closeTenants(tenants)) }()
	plan.Goroutines = t.Databases * t.Connections
	if t.Writer {
		w, err := newWriter(filepath.Join(dir, "beside"))
		if err != nil {
			return s, err
		}
		defer func() { err = errors.Join(err, w.file.Close()) }()
		plan.Beside = []measure.Op{w.write}
	}
	s, err = measure.Run(ctx, plan, func(g int) (measure.Op, error) {
		one, err := t.open(engine, dir, g/t.Connections)
		if err != nil {
			return nil, err
		}
		tenants = append(tenants, one)
		return one.commit, nil
	})
	if err != nil {
		return s, err
	}
	s.Units = nil // The writer's rate is given.
	if total := sqlitevfs.Total(); strings.HasPrefix(engine, Ringside) && total.Syncs > 0 {
		s.Further = map[string]float64{report.SyncsShared: float64(total.SharedSyncs+total.Logged) / float64(total.Syncs)}
	}
	return s, t.check(tenants)
}

// open opens a connection to a database. The first connection creates the database.
func (t Tenants) open(engine, dir string, database int) (*tenant, error) {
	path := filepath.Join(dir, fmt.Sprintf("tenant-%d.db", database))
	c, err := Open(engine, path, t.Journal)
	if err != nil {
		return nil, err
	}
	one := &tenant{path: path, conn: c, random: rand.New(rand.NewPCG(uint64(database), 1))}
	if err = t.make(c); err == nil {
		err = one.prepare(tenantSteps[t.work()])
	}
	if err != nil {
		return nil, errors.Join(err, closeTenants([]*tenant{one}))
	}
	return one, nil
}

// make creates the tables unless another connection has done so.
func (t Tenants) make(c Conn) error {
	made, err := selected(c, "SELECT count(*) FROM sqlite_schema")
	if err != nil || made > 0 {
		return err
	}
	for _, sql := range slices.Concat([]string{"BEGIN"}, tenantSchema[t.work()], []string{"COMMIT"}) {
		if err := c.Exec(sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

func (t *tenant) prepare(steps []string) error {
	for _, sql := range steps {
		s, err := t.conn.Prepare(sql)
		if err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
		t.steps = append(t.steps, s)
	}
	return nil
}

// commit makes one commit.
func (t *tenant) commit() (int, error) {
	customer := t.random.Int64N(1 << 30)
	for i, s := range t.steps {
		arg := customer
		switch {
		case len(t.steps) == 1:
			arg = t.committed
		case i > 1 && i < len(t.steps)-3:
			arg = t.random.Int64N(1 << 30)
		}
		if err := s.Exec(arg); err != nil {
			return 0, err
		}
	}
	t.committed++
	return 0, nil
}

// check counts the commits.
func (t Tenants) check(tenants []*tenant) error {
	want := map[string]int64{}
	for _, one := range tenants {
		want[one.path] += one.committed
	}
	for _, one := range tenants {
		if err := expect(one.conn, tenantCount[t.work()], want[one.path]); err != nil {
			return fmt.Errorf("rows that were acknowledged: %s: %w", filepath.Base(one.path), err)
		}
	}
	return nil
}

func closeTenants(tenants []*tenant) error {
	var errs []error
	for _, one := range tenants {
		for _, s := range one.steps {
			errs = append(errs, s.Close())
		}
		errs = append(errs, one.conn.Close())
	}
	return errors.Join(errs...)
}

// These describe the writer, in bytes: its rate per second, the size of a write, and the length of
// the file that it overwrites again and again.
const (
	WriterRate  = 32 << 20
	writerChunk = 256 << 10
	writerSpan  = 64 << 20
)

// writer overwrites a file at a steady rate, without syncs. The kernel writes the data in the
// background, or when the whole file system is synced.
type writer struct {
	file  *os.File
	chunk []byte
	off   int64
	next  time.Time
}

func newWriter(path string) (*writer, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	w := &writer{file: f, chunk: make([]byte, writerChunk), next: time.Now()}
	for i := range w.chunk {
		w.chunk[i] = byte(i * i >> 3)
	}
	return w, nil
}

var _ measure.Op = (*writer)(nil).write

// write writes a chunk and waits until the next one is due. A late writer catches up for at most a
// second.
func (w *writer) write() (int, error) {
	if _, err := w.file.WriteAt(w.chunk, w.off); err != nil {
		return 0, err
	}
	w.off = (w.off + writerChunk) % writerSpan
	w.next = w.next.Add(time.Second * writerChunk / WriterRate)
	wait := time.Until(w.next)
	if wait < -time.Second {
		w.next = time.Now()
	}
	time.Sleep(wait)
	return 0, nil
}

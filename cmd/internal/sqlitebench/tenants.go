// SPDX-License-Identifier: MIT

package sqlitebench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/sqlitevfs"
)

// Tenants commits one row at a time to each of several databases.
type Tenants struct {
	// Journal is one of the journal modes of this package.
	Journal string `json:"journal"`
	// Databases is how many there are, Connections how many each has. Every connection has a
	// goroutine.
	Databases   int `json:"databases"`
	Connections int `json:"connections"`
	// Writer has a file overwritten beside them, at WriterRate.
	Writer bool `json:"writer,omitempty"`
}

// tenant is one connection.
type tenant struct {
	path      string
	conn      Conn
	insert    Stmt
	committed int64
}

// run measures commits. In the end each database must have every row that was acknowledged.
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
	s.Units = nil // The writer has its rate by definition.
	if total := sqlitevfs.Total(); strings.HasPrefix(engine, Ringside) && total.Syncs > 0 {
		s.Further = map[string]float64{report.SyncsShared: float64(total.SharedSyncs+total.Logged) / float64(total.Syncs)}
	}
	return s, t.check(tenants)
}

// open opens a connection to a database, which the first one makes.
func (t Tenants) open(engine, dir string, database int) (*tenant, error) {
	path := filepath.Join(dir, fmt.Sprintf("tenant-%d.db", database))
	c, err := Open(engine, path, t.Journal)
	if err != nil {
		return nil, err
	}
	one := &tenant{path: path, conn: c}
	err = c.Exec("CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, n INTEGER, v TEXT)")
	if err == nil {
		one.insert, err = c.Prepare("INSERT INTO t(n, v) VALUES(?1, '" + strings.Repeat("ring", 25) + "')")
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return one, nil
}

// commit adds one row.
func (t *tenant) commit() (int, error) {
	if err := t.insert.Exec(t.committed); err != nil {
		return 0, err
	}
	t.committed++
	return 0, nil
}

// check counts the rows.
func (t Tenants) check(tenants []*tenant) error {
	want := map[string]int64{}
	for _, one := range tenants {
		want[one.path] += one.committed
	}
	for _, one := range tenants {
		if err := expect(one.conn, "SELECT count(*) FROM t", want[one.path]); err != nil {
			return fmt.Errorf("rows that were acknowledged: %s: %w", filepath.Base(one.path), err)
		}
	}
	return nil
}

func closeTenants(tenants []*tenant) error {
	var errs []error
	for _, one := range tenants {
		errs = append(errs, one.insert.Close(), one.conn.Close())
	}
	return errors.Join(errs...)
}

// What a program that has nothing to do with the databases writes beside them, in bytes: in a second,
// at a time, and before it begins again at the start of its file.
const (
	WriterRate  = 32 << 20
	writerChunk = 256 << 10
	writerSpan  = 64 << 20
)

// writer overwrites a file at a steady rate, without syncs: the kernel writes it when it likes, or
// when a sync of the whole file system tells it to.
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

// write writes a chunk and waits for the time of the next. One that is late makes up for at most a
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

// SPDX-License-Identifier: MIT

package tenants

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/ncruces/go-sqlite3"
)

// Conn is a connection to the database of a tenant, during one use. It must not be used after the
// function that received it has returned, nor by two goroutines at a time.
type Conn struct {
	db     *sqlite3.Conn
	cached map[string]*sqlite3.Stmt
	pages  func() int64 // of SQLite's memory
}

// Raw returns the driver's connection. It must not be closed. What is set on it, such as pragmas,
// functions and temporary tables, lasts until the database is closed, which may be after any use.
func (c *Conn) Raw() *sqlite3.Conn { return c.db }

// Stmt returns a prepared statement without bindings. It is prepared once as long as the database
// is open. It belongs to the caller until the use ends or until Stmt is called with the same text.
// It must not be closed.
func (c *Conn) Stmt(sql string) (*sqlite3.Stmt, error) {
	if s := c.cached[sql]; s != nil && !s.Busy() {
		return s, s.ClearBindings()
	}
	s, tail, err := c.db.PrepareFlags(sql, sqlite3.PREPARE_PERSISTENT)
	switch {
	case err != nil:
		return nil, err
	case s == nil || strings.Trim(tail, " \n\t\r;") != "":
		return nil, errors.Join(errors.New("tenants: Stmt takes one statement"), s.Close())
	}
	if c.cached[sql] == nil && len(c.cached) < mostStmts {
		c.cached[sql] = s
	}
	return s, nil
}

// mostStmts is how many statements of a connection are kept. A statement is some kilobytes.
const mostStmts = 64

// open opens the database of a tenant.
func (p *Pool) open(ctx context.Context, tenant, path string, create bool) (*Conn, error) {
	mode := "rw"
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist) && create:
		mode = "rwc"
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular(): // SQLite would follow a link
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	slashed := filepath.ToSlash(path)
	if slashed[0] != '/' {
		slashed = "/" + slashed // C:/…
	}
	uri := url.URL{Scheme: "file", Path: slashed, RawQuery: "mode=" + mode + "&vfs=" + url.QueryEscape(p.opts.VFS)}
	db, err := sqlite3.OpenContext(sqlite3.WithMaxMemory(ctx, p.opts.TenantMemory), uri.String())
	if err != nil {
		return nil, err
	}
	c := &Conn{db: db, cached: make(map[string]*sqlite3.Stmt), pages: pagesOf(db)}
	db.SetInterrupt(ctx)
	err = p.prepare(c, tenant)
	db.SetInterrupt(context.Background())
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// prepare sets what the pool promises, and calls Options.Init.
func (p *Pool) prepare(c *Conn, tenant string) error {
	c.db.SoftHeapLimit(p.opts.TenantMemory / 2)
	if err := c.db.BusyTimeout(p.opts.Busy); err != nil {
		return err
	}
	// A sort takes three times as much as the page cache, and the cache one and a half times its
	// size.
	pragmas := fmt.Sprintf("PRAGMA cache_size=-%d; PRAGMA journal_mode=wal; PRAGMA synchronous=full", p.opts.TenantMemory/8>>10)
	if !p.opts.Shared {
		pragmas = "PRAGMA locking_mode=exclusive; " + pragmas
	}
	if err := c.db.Exec(pragmas); err != nil || p.opts.Init == nil {
		return err
	}
	if err := p.opts.Init(c.db, tenant); err != nil {
		return err
	}
	return c.settle()
}

// ErrTransaction is the error of a use that left a transaction open. The transaction was rolled
// back.
var ErrTransaction = errors.New("tenants: the use ended within a transaction, which was rolled back")

// errAttached is the reason why a connection is not used again.
var errAttached = errors.New("tenants: a database was attached")

// settle brings the connection into a state in which the next use can have it. After another error
// than ErrTransaction it must be closed.
func (c *Conn) settle() error {
	c.db.SetInterrupt(context.Background())
	for _, s := range c.cached {
		_ = s.Reset() // returns the error of the last Step
	}
	var others []*sqlite3.Stmt
	for s := range c.db.Stmts() {
		if c.cached[s.SQL()] != s {
			others = append(others, s)
		}
	}
	for _, s := range others {
		_ = s.Close()
	}
	if c.db.DBName(2) != "" {
		return errAttached
	}
	if c.db.GetAutocommit() {
		return nil
	}
	if err := c.db.Exec("ROLLBACK"); err != nil {
		return err
	}
	return ErrTransaction
}

// close closes the connection, whatever its state is.
func (c *Conn) close() error {
	c.db.SetInterrupt(context.Background())
	var all []*sqlite3.Stmt
	for s := range c.db.Stmts() {
		all = append(all, s)
	}
	for _, s := range all {
		_ = attempt(s.Close)
	}
	return attempt(c.db.Close)
}

// attempt calls fn, which panics if SQLite was out of memory.
func attempt(fn func() error) (err error) {
	defer exhausted(&err)
	return fn()
}

// exhausted turns the driver's panic when SQLite is out of memory into an error.
func exhausted(err *error) {
	v := recover()
	if v == nil {
		return
	}
	if e, ok := v.(error); !ok || e.Error() != exhaustion {
		panic(v)
	}
	*err = fmt.Errorf("tenants: a statement needs more than Options.TenantMemory: %w", sqlite3.NOMEM)
}

const exhaustion = "sqlite3: out of memory"

// size returns how many bytes of memory SQLite has taken.
func (c *Conn) size() int64 { return c.pages() * pageSize }

const pageSize = 64 << 10

// pagesOf returns a function that returns the size of the memory of a connection, in pages. The
// driver shows it to extensions only.
func pagesOf(db *sqlite3.Conn) func() int64 {
	var env any
	load := func(e any) extension { env = e; return extension{} }
	//lint:ignore SA1019 the method that replaces it needs Go 1.27
	err := sqlite3.ExtensionInit(db, load, func() (_, _, _, _ int64) { return })
	if memory, ok := env.(interface{ Grow(delta, most int64) int64 }); ok && err == nil {
		return func() int64 { return memory.Grow(0, 0) }
	}
	return func() int64 { // another version of the driver
		var sum int64
		for _, part := range []sqlite3.DBStatus{sqlite3.DBSTATUS_CACHE_USED, sqlite3.DBSTATUS_SCHEMA_USED, sqlite3.DBSTATUS_STMT_USED} {
			_, most, _ := db.Status(part, false)
			now, _, _ := db.Status(part, false)
			sum += max(now, most)
		}
		return (sum+sum/4)/pageSize + 10
	}
}

// extension is an extension of SQLite without content.
type extension struct{}

func (extension) Xsqlite3_extension_init(_, _, _ int32) int32 { return 0 }

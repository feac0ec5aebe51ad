// SPDX-License-Identifier: MIT

package replica

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ncruces/go-sqlite3"
	sqlite "github.com/ncruces/go-sqlite3/driver"
)

// OpenOption changes what connections of Node.Open may do.
type OpenOption func(*connector)

// Stale lets reads run on any node whose state is no older than a bound: the node has all
// transactions that were acknowledged longer ago than that. Within the bound a read asks no
// other node. A negative bound allows any age, even when the leader cannot be reached. After its
// start a node waits for a leader first. The connections cannot write.
func Stale(bound time.Duration) OpenOption {
	return func(c *connector) { c.stale, c.bound = true, bound }
}

// Open opens a database. On the leader it is created if it does not exist.
//
// A commit returns when a majority of the members has it durably. An error that
// matches ErrUncertain means that the outcome is unknown. Any other error of a transaction means
// that nothing was committed. On a node that does not lead, writes and reads fail with
// *NotLeaderError, or run on the leader if Options.Forward is set. Reads on the leader are
// linearizable: each verifies, once for a transaction, that this node still leads. With Stale they
// run on every node.
//
// A transaction that is not read-only takes the database's write lock when it begins.
//
// Outside a transaction each statement is a transaction of its own:
//
//   - An Exec of several statements commits them one by one. If one fails, those before it stay
//     committed, and those after it are not executed. With arguments, and in a Query, several
//     statements are refused, and none is executed.
//   - A Query that writes (RETURNING) commits before it returns, and keeps its rows in memory.
//
// If the context of a call ends while it waits for a commit, its error matches ErrUncertain. For Commit
// that is the context of BeginTx. A call also ends with ErrUncertain when nothing has been committed for 30
// seconds, or six times Options.Election if that is longer, while it waits.
func (n *Node) Open(name string, options ...OpenOption) (*sql.DB, error) {
	c, err := n.connector(name, options...)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(c), nil
}

func (n *Node) connector(name string, options ...OpenOption) (*connector, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	c := &connector{n: n, name: name, forward: n.opts.Forward}
	for _, o := range options {
		o(c)
	}
	return c, nil
}

// Driver returns a driver for [sql.Register], for libraries that open databases by the names of a
// driver and of a data source. The data source is a database's name or a URI, such as
// "file:tenants/42.db". The parameter stale of the URI is the bound of [Stale], as
// [time.ParseDuration] takes it: "file:tenants/42.db?stale=2s". The databases are those of Node.Open.
func (n *Node) Driver() driver.Driver { return nodeDriver{n} }

type nodeDriver struct{ n *Node }

var _ driver.DriverContext = nodeDriver{}

func (d nodeDriver) Open(source string) (driver.Conn, error) {
	c, err := d.OpenConnector(source)
	if err != nil {
		return nil, err
	}
	return c.Connect(context.Background())
}

func (d nodeDriver) OpenConnector(source string) (driver.Connector, error) {
	name, query, _ := strings.Cut(strings.TrimPrefix(source, "file:"), "?")
	params, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("replica: the data source %q: %w", source, err)
	}
	var options []OpenOption
	for key, values := range params {
		if key != "stale" {
			return nil, fmt.Errorf("replica: the data source %q has the parameter %q: there is only stale", source, key)
		}
		bound, err := time.ParseDuration(values[0])
		if err != nil {
			return nil, fmt.Errorf("replica: the data source %q: stale: %w", source, err)
		}
		options = append(options, Stale(bound))
	}
	return d.n.connector(name, options...)
}

type connector struct {
	n       *Node
	name    string
	stale   bool
	bound   time.Duration
	forward bool          // statements run on the leader if this node does not lead
	id      atomic.Uint64 // of the database; 0 before the first connection
}

func (c *connector) Driver() driver.Driver { return c.n.Driver() }

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	n := c.n
	if c.forward && !c.stale && n.role.leader() == nil {
		return c.connectLeader(ctx)
	}
	db, err := n.catalog.named(c.name)
	if errors.Is(err, os.ErrNotExist) && c.stale { // it may have been created within the bound
		if err := n.reads.fresh(ctx, c.bound); err != nil {
			return nil, err
		}
		db, err = n.catalog.named(c.name)
	}
	if errors.Is(err, os.ErrNotExist) && !c.stale && c.id.Load() == 0 {
		err = n.Create(ctx, c.name, CreateOptions{})
		_, elects := errors.AsType[*NotLeaderError](err)
		if err != nil && !elects && !errors.Is(err, os.ErrExist) && !errors.Is(err, ErrUncertain) && ctx.Err() == nil {
			n.fitness.fileFailed(err)
		}
		if err == nil || errors.Is(err, os.ErrExist) {
			db, err = n.catalog.named(c.name)
		}
	}
	if err != nil {
		return nil, err
	}
	if !c.id.CompareAndSwap(0, db.id) && c.id.Load() != db.id {
		return nil, errDeleted
	}
	if err := n.WaitReady(ctx); err != nil {
		return nil, err
	}
	writer := !c.stale && n.role.leader() != nil
	if c.forward && !c.stale && !writer { // the node was deposed meanwhile
		return c.connectLeader(ctx)
	}
	epoch, err := db.usable()
	if err != nil {
		if _, broken := errors.AsType[*BrokenError](err); broken && writer {
			n.fitness.fileFailed(err)
		}
		return nil, err
	}
	// SQLite drops the reason of a failed commit. The WAL's file passes it to the connection.
	k := &conn{c: c, db: db, epoch: epoch, writer: writer, ended: make(chan struct{})}
	token := strconv.FormatUint(n.proposer.next.Add(1), 36)
	n.sessions.connecting.Store(token, k)
	defer n.sessions.connecting.Delete(token)
	uri := db.uri + "?vfs=" + n.catalog.vfsName + "&" + paramConn + "=" + token + "&_pragma=busy_timeout(60000)"
	if writer {
		uri += "&" + paramRole + "=" + roleWriter + "&_pragma=synchronous(full)&_txlock=immediate"
	}
	inner, err := (&sqlite.SQLite{}).OpenConnector(uri)
	if err != nil {
		return nil, err
	}
	raw, err := inner.Connect(ctx)
	if err != nil {
		if writer && ctx.Err() == nil {
			n.fitness.fileFailed(err)
		}
		return nil, err
	}
	k.Conn = raw.(sqlite.Conn)
	if err := k.Conn.Raw().SetAuthorizer(k.authorize); err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	n.sessions.mu.Lock()
	n.sessions.conns[k] = struct{}{}
	n.sessions.mu.Unlock()
	if !k.valid() { // the node was deposed meanwhile
		return nil, errors.Join(n.role.notLeader(), k.Close())
	}
	return k, nil
}

var (
	_ driver.ExecerContext     = (*conn)(nil)
	_ driver.SessionResetter   = (*conn)(nil)
	_ driver.Validator         = (*conn)(nil)
	_ driver.NamedValueChecker = (*conn)(nil)
)

// begin begins a call, which ends when k.mu is unlocked. It returns the call's context. If it
// returns an error, k.mu is not locked.
func (k *conn) begin(ctx context.Context) (context.Context, error) {
	k.mu.Lock()
	if k.deposed.Load() || k.epoch != k.db.epoch.Load() {
		defer k.mu.Unlock()
		return nil, k.gone()
	}
	if k.c.stale {
		if err := k.db.readable(); err != nil {
			defer k.mu.Unlock()
			return nil, err
		}
	}
	k.attaches = false
	k.failure.Store(nil) // a failed checkpoint does not concern its caller
	k.committed.Store(false)
	return &callContext{ctx, k}, nil
}

// gone returns the reason why the connection was ended. It rolls back first: apply may hold the
// database's mutex and wait for the writer's lock. k.mu is locked.
func (k *conn) gone() error {
	k.rollback()
	if k.c.n.life.closing.Err() != nil {
		return net.ErrClosed
	}
	if _, err := k.db.usable(); err != nil {
		return err
	}
	if k.c.stale {
		return driver.ErrBadConn // the file was replaced or repaired: database/sql uses a new connection
	}
	if err := k.c.n.role.writable(); err != nil {
		return err
	}
	return &NotLeaderError{Leader: k.c.n.opts.ID, Address: k.c.n.Address()} // this node leads again: the caller may repeat
}

func (k *conn) valid() bool {
	n := k.c.n
	return !k.deposed.Load() && k.epoch == k.db.epoch.Load() && (k.c.stale || k.writer == (n.role.leader() != nil))
}

// IsValid reports whether the pool may keep the connection.
func (k *conn) IsValid() bool { return k.valid() }

// ResetSession is called before the connection is used again.
func (k *conn) ResetSession(context.Context) error {
	if !k.valid() {
		return driver.ErrBadConn
	}
	return nil
}

func (k *conn) Close() error {
	n := k.c.n
	n.sessions.mu.Lock()
	delete(n.sessions.conns, k)
	n.sessions.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.depose()
	k.closed = true
	return k.Conn.Close()
}

// translate turns errors of SQLite into errors of the node.
func (k *conn) translate(err error) error {
	if err != nil {
		if why := k.failure.Swap(nil); why != nil {
			err = *why
		} else if k.committed.Load() && (errors.Is(err, sqlite3.IOERR) || errors.Is(err, sqlite3.NOMEM)) {
			// SQLite enters the frames into the index of the WAL after the sync.
			return k.db.unwritten(fmt.Errorf("a committed transaction could not be entered into the index of the WAL of %s: %w", k.db.path, err))
		}
	}
	if k.writer && (errors.Is(err, sqlite3.IOERR) || errors.Is(err, sqlite3.CANTOPEN)) {
		k.c.n.fitness.fileFailed(err)
	}
	switch {
	case err == nil, err == io.EOF, err == driver.ErrSkip, err == driver.ErrBadConn:
		return err
	case errors.Is(err, ErrUncertain):
		return err
	}
	if e, ok := errors.AsType[*NotLeaderError](err); ok {
		return e
	}
	if errors.Is(err, sqlite3.READONLY) && !k.writer && !k.c.stale {
		return k.c.n.role.notLeader()
	}
	if errors.Is(err, sqlite3.READONLY) && k.c.stale {
		return fmt.Errorf("replica: connections with Stale cannot write: %w", err)
	}
	if k.deposed.Load() && (errors.Is(err, sqlite3.INTERRUPT) || errors.Is(err, context.Canceled) || errors.Is(err, sqlite3.ABORT)) {
		return k.gone()
	}
	return err
}

// check verifies, before a read, that the state of this node is recent enough. k.mu is locked.
func (k *conn) check(ctx context.Context) error {
	if k.checked {
		return nil
	}
	var err error
	if k.c.stale {
		if err = k.c.n.reads.fresh(ctx, k.c.bound); err == nil {
			err = k.db.readable() // what has been applied since begin
		}
	} else {
		err = k.c.n.reads.confirmLeads(ctx)
	}
	k.checked = err == nil && k.inTx
	return err
}

func (k *conn) Begin() (driver.Tx, error) {
	return k.BeginTx(context.Background(), driver.TxOptions{})
}

func (k *conn) BeginTx(user context.Context, o driver.TxOptions) (driver.Tx, error) {
	ctx, err := k.begin(user)
	if err != nil {
		return nil, err
	}
	defer k.mu.Unlock()
	if o.ReadOnly || k.c.stale {
		// The state that the transaction sees is fixed by its first read, after this.
		if err := k.check(ctx); err != nil {
			return nil, err
		}
	} else if err := k.c.n.role.writable(); err != nil {
		return nil, err
	}
	tx, err := k.Conn.BeginTx(ctx, o)
	if err != nil {
		return nil, k.translate(err)
	}
	k.inTx, k.txCtx, k.checked = true, user, o.ReadOnly || k.c.stale
	return &userTx{tx, k}, nil
}

type userTx struct {
	driver.Tx
	k *conn
}

// Commit waits for a majority until the context of BeginTx ends.
func (t *userTx) Commit() error {
	return t.end(t.k.txCtx, func(ctx context.Context) error {
		raw := t.k.Conn.Raw()
		old := raw.SetInterrupt(ctx)
		defer raw.SetInterrupt(old)
		err := t.Tx.Commit()
		if errors.Is(err, sqlite3.INTERRUPT) && t.k.txCtx.Err() != nil {
			return t.k.txCtx.Err()
		}
		return err
	})
}

func (t *userTx) Rollback() error {
	return t.end(context.Background(), func(context.Context) error { return t.Tx.Rollback() })
}

func (t *userTx) end(ctx context.Context, f func(context.Context) error) error {
	ctx, err := t.k.begin(ctx)
	if err != nil {
		return err
	}
	defer t.k.mu.Unlock()
	t.k.inTx, t.k.checked, t.k.ending = false, false, true
	defer func() { t.k.ending = false }()
	return t.k.translate(f(ctx))
}

func (k *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	ctx, err := k.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer k.mu.Unlock()
	k.willPrepare(query)
	return k.exec(ctx, func() (driver.Result, error) { return k.Conn.(driver.ExecerContext).ExecContext(ctx, query, args) })
}

// exec executes a statement. An error may come from an outdated state. So may the result of a statement
// that changed nothing, such as an UPDATE that found no row; a change is verified by its commit. k.mu is
// locked.
func (k *conn) exec(ctx context.Context, f func() (driver.Result, error)) (driver.Result, error) {
	before := k.Conn.Raw().TotalChanges()
	r, err := f()
	unverified := err != nil && err != driver.ErrSkip && k.failure.Load() == nil ||
		err == nil && k.writer && !k.committed.Load() && k.Conn.Raw().TotalChanges() == before
	if unverified {
		if err := k.check(ctx); err != nil {
			return nil, err
		}
	}
	return r, k.translate(err)
}

func (k *conn) Prepare(query string) (driver.Stmt, error) {
	return k.PrepareContext(context.Background(), query)
}

func (k *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	ctx, err := k.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer k.mu.Unlock()
	k.willPrepare(query)
	s, err := k.Conn.PrepareContext(ctx, query)
	if err != nil {
		// The result may come from an outdated state.
		if err := k.check(ctx); err != nil {
			return nil, err
		}
		if s, err = k.Conn.PrepareContext(ctx, query); err != nil {
			return nil, k.translate(err)
		}
	}
	return &stmt{s.(innerStmt), k}, nil
}

func (k *conn) CheckNamedValue(v *driver.NamedValue) error {
	return k.Conn.(driver.NamedValueChecker).CheckNamedValue(v)
}

type innerStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
	driver.NamedValueChecker
}

type stmt struct {
	innerStmt
	k *conn
}

func (s *stmt) Close() error {
	s.k.mu.Lock()
	defer s.k.mu.Unlock()
	return s.innerStmt.Close()
}

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	ctx, err := s.k.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer s.k.mu.Unlock()
	return s.k.exec(ctx, func() (driver.Result, error) { return s.innerStmt.ExecContext(ctx, args) })
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	ctx, err := s.k.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer s.k.mu.Unlock()
	if err := s.k.check(ctx); err != nil {
		return nil, err
	}
	if s.k.writer && !s.k.inTx && !s.innerStmt.(interface{ ReadOnly() bool }).ReadOnly() {
		r, err := s.queryWrite(ctx, args)
		if err != nil {
			return nil, s.k.translate(err)
		}
		return r, nil
	}
	r, err := s.innerStmt.QueryContext(ctx, args)
	if err != nil {
		return nil, s.k.translate(err)
	}
	return &rows{r.(innerRows), s.k}, nil
}

// queryWrite runs a query that writes (RETURNING), outside a transaction, to its end. Its commit is at the
// end of its rows. If the caller's context ended between the rows, database/sql would close them, and drop
// the error of the commit.
func (s *stmt) queryWrite(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	until := &firstRow{Context: ctx}
	r, err := s.innerStmt.QueryContext(until, args)
	if err != nil {
		return nil, err
	}
	w := &writtenRows{rows: &rows{r.(innerRows), s.k}}
	for {
		row := make([]driver.Value, len(r.Columns()))
		switch err := r.Next(row); err {
		case nil:
		case io.EOF:
			return w, r.Close()
		default:
			_ = r.Close() // it has the same error
			return nil, err
		}
		until.over = true
		for i, v := range row {
			if p, ok := v.([]byte); ok {
				row[i] = bytes.Clone(p) // SQLite's memory
			}
		}
		w.values = append(w.values, row)
	}
}

// firstRow is a context that has no effect after the first row: all changes are made then.
type firstRow struct {
	context.Context
	over bool
}

func (c *firstRow) Err() error {
	if c.over {
		return nil
	}
	return c.Context.Err()
}

// writtenRows are the rows of a query that has ended.
type writtenRows struct {
	*rows
	values [][]driver.Value
}

func (r *writtenRows) Close() error { return nil }

func (r *writtenRows) Next(dest []driver.Value) error {
	if len(r.values) == 0 {
		return io.EOF
	}
	copy(dest, r.values[0])
	r.values = r.values[1:]
	return nil
}

type innerRows interface {
	driver.Rows
	driver.RowsColumnTypeDatabaseTypeName
	driver.RowsColumnTypeNullable
	driver.RowsColumnTypeScanType
}

type rows struct {
	innerRows
	k *conn
}

func (r *rows) Next(dest []driver.Value) error {
	r.k.mu.Lock()
	defer r.k.mu.Unlock()
	if r.k.deposed.Load() || r.k.epoch != r.k.db.epoch.Load() {
		return r.k.gone()
	}
	return r.k.translate(r.innerRows.Next(dest))
}

func (r *rows) Close() error {
	r.k.mu.Lock()
	defer r.k.mu.Unlock()
	return r.k.translate(r.innerRows.Close())
}

func (r *rows) ColumnTypeScanType(i int) reflect.Type {
	r.k.mu.Lock()
	defer r.k.mu.Unlock()
	return r.innerRows.ColumnTypeScanType(i)
}
